"""The console: its built files and how they are served."""
