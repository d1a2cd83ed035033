# pragma version 0.4.3
"""
@title A wallet for tests whose code answers ERC-1271 for one key.
@license Apache-2.0
"""

KEY: immutable(address)


@deploy
def __init__(key: address):
    KEY = key


@external
def approve(token: address, spender: address, amount: uint256):
    raw_call(token, abi_encode(spender, amount, method_id=method_id("approve(address,uint256)")))


@view
@external
def isValidSignature(digest: bytes32, signature: Bytes[2048]) -> bytes4:
    # Any bytes may follow the key's signature, as those of a passkey or of several owners would.
    r: uint256 = convert(extract32(signature, 0), uint256)
    s: uint256 = convert(extract32(signature, 32), uint256)
    if ecrecover(digest, convert(slice(signature, 64, 1), uint256), r, s) == KEY:
        return 0x1626ba7e
    return 0xffffffff
