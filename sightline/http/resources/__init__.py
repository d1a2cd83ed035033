"""The calls of the public listener, one module per resource."""
