"""The Python SDK. Knows only the wire: the REST interface, JSON-RPC, and a wallet's signature."""

from sightline.client.api import Api, JpegFrame
from sightline.client.errors import ApiError, ChainError
from sightline.client.wallet import ChainClient, Wallet

__all__ = ["Api", "ApiError", "ChainClient", "ChainError", "JpegFrame", "Wallet"]
