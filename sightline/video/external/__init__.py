"""Engines that others run: MediaMTX and Cloudflare Stream. They carry the media; our workers read frames from them."""
