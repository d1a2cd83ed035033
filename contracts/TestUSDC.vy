# pragma version 0.4.3
# pragma evm-version cancun
"""
@title Test USDC: the behaviour of USDC that matters to a settlement, for test networks only.
@license Apache-2.0
@notice ERC-20 with 6 decimals, EIP-2612 permit, EIP-3009 authorizations, pause and blacklist. As in USDC,
        transferFrom always lowers the allowance (also an endless one) and emits no Approval for it, and a
        paused token or a blacklisted party makes every transfer revert.
"""

event Transfer:
    sender: indexed(address)
    receiver: indexed(address)
    value: uint256

event Approval:
    owner: indexed(address)
    spender: indexed(address)
    value: uint256

event AuthorizationUsed:
    authorizer: indexed(address)
    nonce: indexed(bytes32)

event AuthorizationCanceled:
    authorizer: indexed(address)
    nonce: indexed(bytes32)

event Paused:
    paused: bool

event Blacklisted:
    account: indexed(address)
    blacklisted: bool

event OwnershipTransferStarted:
    previous: indexed(address)
    pending: indexed(address)

event OwnershipTransferred:
    previous: indexed(address)
    owner: indexed(address)

name: public(constant(String[32])) = "Sightline Test USD Coin"
symbol: public(constant(String[8])) = "tUSDC"
version: public(constant(String[4])) = "1"
decimals: public(constant(uint8)) = 6

DOMAIN_TYPE_HASH: constant(bytes32) = keccak256(
    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
)
PERMIT_TYPE_HASH: constant(bytes32) = keccak256(
    "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"
)
TRANSFER_TYPE_HASH: constant(bytes32) = keccak256(
    "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
)
RECEIVE_TYPE_HASH: constant(bytes32) = keccak256(
    "ReceiveWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
)
CANCEL_TYPE_HASH: constant(bytes32) = keccak256("CancelAuthorization(address authorizer,bytes32 nonce)")

# Half of the order of secp256k1: a signature with a larger s is the mirror image of another one (EIP-2).
S_MAX: constant(uint256) = 57896044618658097711785492504343953926418782139537452191302581570759080747168

owner: public(address)
pendingOwner: public(address)
paused: public(bool)
isBlacklisted: public(HashMap[address, bool])
totalSupply: public(uint256)
balanceOf: public(HashMap[address, uint256])
allowance: public(HashMap[address, HashMap[address, uint256]])
nonces: public(HashMap[address, uint256])
authorizationState: public(HashMap[address, HashMap[bytes32, bool]])


@deploy
def __init__(owner: address):
    assert owner != empty(address), "TestUSDC: zero owner"
    self.owner = owner
    log OwnershipTransferred(previous=empty(address), owner=owner)


@view
@internal
def _domain_separator() -> bytes32:
    # Computed on each use: chain.id may change under a contract when a chain forks.
    return keccak256(
        abi_encode(DOMAIN_TYPE_HASH, keccak256(name), keccak256(version), chain.id, self)
    )


@view
@external
def DOMAIN_SEPARATOR() -> bytes32:
    return self._domain_separator()


@view
@internal
def _require_may_move(sender: address, receiver: address, amount: uint256):
    assert not self.paused, "TestUSDC: paused"
    assert not self.isBlacklisted[sender], "TestUSDC: sender is blacklisted"
    assert not self.isBlacklisted[receiver], "TestUSDC: receiver is blacklisted"
    assert receiver != empty(address), "TestUSDC: transfer to the zero address"
    assert self.balanceOf[sender] >= amount, "TestUSDC: amount exceeds balance"


@internal
def _move(sender: address, receiver: address, amount: uint256):
    self._require_may_move(sender, receiver, amount)
    self.balanceOf[sender] -= amount
    self.balanceOf[receiver] += amount
    log Transfer(sender=sender, receiver=receiver, value=amount)


@internal
def _approve(holder: address, spender: address, amount: uint256):
    assert not self.paused, "TestUSDC: paused"
    assert not self.isBlacklisted[holder], "TestUSDC: owner is blacklisted"
    assert not self.isBlacklisted[spender], "TestUSDC: spender is blacklisted"
    assert spender != empty(address), "TestUSDC: approve to the zero address"
    self.allowance[holder][spender] = amount
    log Approval(owner=holder, spender=spender, value=amount)


@view
@internal
def _require_signed(signer: address, struct_hash: bytes32, v: uint8, r: bytes32, s: bytes32):
    assert convert(s, uint256) <= S_MAX, "TestUSDC: signature s is not canonical"
    digest: bytes32 = keccak256(concat(x"1901", self._domain_separator(), struct_hash))
    recovered: address = ecrecover(digest, v, r, s)
    assert recovered != empty(address) and recovered == signer, "TestUSDC: invalid signature"


@external
def transfer(receiver: address, amount: uint256) -> bool:
    self._move(msg.sender, receiver, amount)
    return True


@external
def approve(spender: address, amount: uint256) -> bool:
    self._approve(msg.sender, spender, amount)
    return True


@external
def transferFrom(sender: address, receiver: address, amount: uint256) -> bool:
    assert not self.isBlacklisted[msg.sender], "TestUSDC: spender is blacklisted"
    allowed: uint256 = self.allowance[sender][msg.sender]
    assert allowed >= amount, "TestUSDC: amount exceeds allowance"
    self.allowance[sender][msg.sender] = allowed - amount
    self._move(sender, receiver, amount)
    return True


@external
def permit(holder: address, spender: address, amount: uint256, deadline: uint256, v: uint8, r: bytes32, s: bytes32):
    assert block.timestamp <= deadline, "TestUSDC: permit is expired"
    nonce: uint256 = self.nonces[holder]
    self.nonces[holder] = nonce + 1
    self._require_signed(
        holder, keccak256(abi_encode(PERMIT_TYPE_HASH, holder, spender, amount, nonce, deadline)), v, r, s
    )
    self._approve(holder, spender, amount)


@internal
def _use_authorization(authorizer: address, nonce: bytes32, valid_after: uint256, valid_before: uint256):
    assert block.timestamp > valid_after, "TestUSDC: authorization is not yet valid"
    assert block.timestamp < valid_before, "TestUSDC: authorization is expired"
    assert not self.authorizationState[authorizer][nonce], "TestUSDC: authorization is used or canceled"
    self.authorizationState[authorizer][nonce] = True
    log AuthorizationUsed(authorizer=authorizer, nonce=nonce)


@external
def transferWithAuthorization(
    sender: address, receiver: address, amount: uint256, validAfter: uint256, validBefore: uint256,
    nonce: bytes32, v: uint8, r: bytes32, s: bytes32,
):
    self._require_signed(
        sender,
        keccak256(abi_encode(TRANSFER_TYPE_HASH, sender, receiver, amount, validAfter, validBefore, nonce)),
        v, r, s,
    )
    self._use_authorization(sender, nonce, validAfter, validBefore)
    self._move(sender, receiver, amount)


@external
def receiveWithAuthorization(
    sender: address, receiver: address, amount: uint256, validAfter: uint256, validBefore: uint256,
    nonce: bytes32, v: uint8, r: bytes32, s: bytes32,
):
    assert receiver == msg.sender, "TestUSDC: caller must be the payee"
    self._require_signed(
        sender,
        keccak256(abi_encode(RECEIVE_TYPE_HASH, sender, receiver, amount, validAfter, validBefore, nonce)),
        v, r, s,
    )
    self._use_authorization(sender, nonce, validAfter, validBefore)
    self._move(sender, receiver, amount)


@external
def cancelAuthorization(authorizer: address, nonce: bytes32, v: uint8, r: bytes32, s: bytes32):
    assert not self.authorizationState[authorizer][nonce], "TestUSDC: authorization is used or canceled"
    self._require_signed(authorizer, keccak256(abi_encode(CANCEL_TYPE_HASH, authorizer, nonce)), v, r, s)
    self.authorizationState[authorizer][nonce] = True
    log AuthorizationCanceled(authorizer=authorizer, nonce=nonce)


@view
@internal
def _require_owner():
    assert msg.sender == self.owner, "TestUSDC: caller is not the owner"


@external
def mint(receiver: address, amount: uint256) -> bool:
    self._require_owner()
    assert not self.paused, "TestUSDC: paused"
    assert not self.isBlacklisted[receiver], "TestUSDC: receiver is blacklisted"
    assert receiver != empty(address), "TestUSDC: mint to the zero address"
    self.totalSupply += amount
    self.balanceOf[receiver] += amount
    log Transfer(sender=empty(address), receiver=receiver, value=amount)
    return True


@external
def setPaused(paused: bool):
    self._require_owner()
    self.paused = paused
    log Paused(paused=paused)


@external
def setBlacklisted(account: address, blacklisted: bool):
    self._require_owner()
    self.isBlacklisted[account] = blacklisted
    log Blacklisted(account=account, blacklisted=blacklisted)


@external
def transferOwnership(pending: address):
    self._require_owner()
    self.pendingOwner = pending
    log OwnershipTransferStarted(previous=self.owner, pending=pending)


@external
def acceptOwnership():
    assert msg.sender == self.pendingOwner, "TestUSDC: caller is not the pending owner"
    log OwnershipTransferred(previous=self.owner, owner=msg.sender)
    self.owner = msg.sender
    self.pendingOwner = empty(address)
