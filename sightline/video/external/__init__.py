"""External engines: MediaMTX and Cloudflare Stream. They carry the media; Sightline's workers read frames from them."""
