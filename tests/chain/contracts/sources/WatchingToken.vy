# pragma version 0.4.3
"""
@title A token for tests that notes the state of a session while it moves money.
@license Apache-2.0
"""

interface Escrow:
    def stateOf(session: bytes32) -> bytes32: view

balanceOf: public(HashMap[address, uint256])
watched: public(bytes32)
seen: public(DynArray[bytes32, 10])


@external
def watch(session: bytes32):
    self.watched = session


@external
def mint(receiver: address, amount: uint256):
    self.balanceOf[receiver] += amount


@internal
def _move(sender: address, receiver: address, amount: uint256):
    self.balanceOf[sender] -= amount
    self.balanceOf[receiver] += amount
    self.seen.append(staticcall Escrow(msg.sender).stateOf(self.watched))


@external
def transfer(receiver: address, amount: uint256) -> bool:
    self._move(msg.sender, receiver, amount)
    return True


@external
def transferFrom(sender: address, receiver: address, amount: uint256) -> bool:
    self._move(sender, receiver, amount)
    return True
