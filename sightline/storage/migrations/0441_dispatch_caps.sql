-- Dispatched sessions of a consumer that are not started, and those that it abandoned. Both sets are small.
CREATE INDEX session_unstarted ON session (consumer_workspace_id) WHERE state = 'ASSIGNED';
CREATE INDEX session_abandoned ON session (consumer_workspace_id, updated_at_ms DESC)
  WHERE state IN ('CANCELLED', 'EXPIRED') AND doc #>> '{phase,is_dispatched}' = 'true'
    AND doc #>> '{phase,reason}' IN ('START_TIMEOUT', 'CONSUMER_CANCELLED');
