"""Video by WebRTC, with stock aiortc: a publisher (`publish`), a player (`play`) and the demo clip (`assets`).

They run with asyncio, in processes of their own. Needs the extra `device`.
"""

from importlib.util import find_spec

from sightline_client.errors import MissingExtraError

if find_spec("aiortc") is None or find_spec("av") is None:
    raise MissingExtraError("device")
