"""Both HTTP listeners: their ports, their certificates, and serving them."""
