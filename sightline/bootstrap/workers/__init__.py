"""Several server processes on one machine: the supervisor, and the workers that it starts."""
