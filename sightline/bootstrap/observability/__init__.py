"""What operators see of a running server: readiness and metrics."""
