"""Units of work on Postgres, called from trio. Knows no table of Sightline."""
