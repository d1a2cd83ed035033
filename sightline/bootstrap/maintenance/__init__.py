"""Commands on a data directory beside the server: backup, restore, doctor."""
