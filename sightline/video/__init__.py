"""Video backends: the embedded WHIP/WHEP forwarder in worker processes, frames, external engines."""
