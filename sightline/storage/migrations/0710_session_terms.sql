-- The terms of a session have a shortest charge, and requests an operator that covers the place. Servers that do not know
-- them cannot read the rows, and would charge otherwise than the session's first event says: they must be stopped first.
SELECT 1;
