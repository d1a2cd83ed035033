"""The ASGI application: the pipeline behind Quart-Trio, plain ASGI and WebSockets."""
