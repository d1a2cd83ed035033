"""The Postgres that Sightline starts and stops by itself."""
