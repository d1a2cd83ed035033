"""Video backends: live inputs that operators publish to, viewers play and agents take frames from.

Owns: the embedded backend (`embedded.open_embedded`), backends on external engines (`open_external` in
`external.engine`, with `external.mediamtx` or `external.cloudflare`) and their `options`. Imports ports, domain and
system only; asyncio and aiortc live in the worker processes, never in the server's own process.

Reading order: `ports/video.py`; `embedded`, `worker_pool` and `worker_link` (server process, trio); `ipc`; `worker`
(worker process, asyncio); `media/live_input` (one session); then `media/assembler`, `media/egress` and `media/tap`.
`rtc` is the WebRTC transport.
"""
