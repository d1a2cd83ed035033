"""The Python client. It uses the public interface only: REST, JSON-RPC and wallet signatures."""

from sightline.client.api import Api, JpegFrame
from sightline.client.errors import ApiError, ChainError
from sightline.client.wallet import ChainClient, Wallet

__all__ = ["Api", "ApiError", "ChainClient", "ChainError", "JpegFrame", "Wallet"]
