"""Work on the database as a whole: retention, readiness, the newest stored instant."""
