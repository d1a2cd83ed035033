-- Short texts of a consumer to its operator (ADR 0257). Servers that do not know the event cannot read the receipts of such
-- sessions: they must be stopped first.

DROP TRIGGER webhook_session_event ON session_event;
CREATE TRIGGER webhook_session_event AFTER INSERT ON session_event FOR EACH ROW
  WHEN (NEW.kind IN (
    'CREATED', 'ASSIGNED', 'REOPENED', 'STARTED', 'PAUSED', 'RESUMED', 'EXTENDED', 'MESSAGE', 'ENDED', 'CANCELLED',
    'EXPIRED'))
  EXECUTE FUNCTION webhook_session_event();
