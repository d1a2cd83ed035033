# pragma version 0.4.3
# A contract wallet with one owner: says yes (ERC-1271) to what the owner's key signed.

MAGIC: constant(bytes4) = 0x1626ba7e
REFUSED: constant(bytes4) = 0xffffffff
owner: public(address)


@deploy
def __init__(owner: address):
    self.owner = owner


@external
def change_owner(owner: address):
    assert msg.sender == self.owner
    self.owner = owner


@external
@view
def isValidSignature(digest: bytes32, signature: Bytes[1024]) -> bytes4:
    if len(signature) != 65:
        return REFUSED
    r: uint256 = convert(slice(signature, 0, 32), uint256)
    s: uint256 = convert(slice(signature, 32, 32), uint256)
    v: uint256 = convert(slice(signature, 64, 1), uint256)
    signer: address = ecrecover(digest, v, r, s)
    if signer != empty(address) and signer == self.owner:
        return MAGIC
    return REFUSED
