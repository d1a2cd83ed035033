-- compatible_from: 0800
-- Demand near a place reads a box in place of a band around the Earth.
DROP INDEX session_awaited;
CREATE INDEX session_awaited ON session (lat, lng) WHERE state IN ('REQUESTED', 'ASSIGNED');
