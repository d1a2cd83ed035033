# pragma version 0.4.3
# pragma evm-version cancun
"""
@title Test USDC: the behaviour of USDC that matters to a settlement, for test networks only.
@license Apache-2.0
@notice ERC-20 with 6 decimals, EIP-2612 permit, EIP-3009 authorizations, pause and blacklist. As in USDC,
        transferFrom always lowers the allowance (also an endless one) and emits no Approval for it, and a
        paused token or a blacklisted party makes every transfer revert.
@dev    As in USDC since version 2.2, permit, transferWithAuthorization, receiveWithAuthorization and
        cancelAuthorization exist twice: with v, r, s and with a signature in bytes. Both ask an account with code
        by ERC-1271 and never its key, so an account that delegates to foreign code (EIP-7702) can not sign.
        Vyper has no overloading: __default__ serves the forms with bytes, and contracts/build.py adds them to the
        ABI of the artefact.
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

# The bit of an account's word that says that it is blacklisted.
BLACKLISTED: constant(uint256) = 2 ** 255

SIGNATURE_WORDS_MAX: constant(uint256) = 32
# The words and the two that precede them in their encoding as an array.
SIGNATURE_MAX: constant(uint256) = 1088
ERC1271_MAGIC: constant(bytes32) = 0x1626ba7e00000000000000000000000000000000000000000000000000000000

# Half of the order of secp256k1: a signature with a larger s is the mirror image of another one (EIP-2).
S_MAX: constant(uint256) = 57896044618658097711785492504343953926418782139537452191302581570759080747168

owner: public(address)
pendingOwner: public(address)
paused: public(bool)
totalSupply: public(uint256)
# As in USDC since version 2.2, one word for each account: its balance, and whether it is blacklisted.
words: HashMap[address, uint256]
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
@external
def balanceOf(account: address) -> uint256:
    return self.words[account] & (BLACKLISTED - 1)


@view
@internal
def _is_blacklisted(account: address) -> bool:
    return self.words[account] >= BLACKLISTED


@view
@external
def isBlacklisted(account: address) -> bool:
    return self._is_blacklisted(account)


@internal
def _move(sender: address, receiver: address, amount: uint256):
    assert not self.paused, "TestUSDC: paused"
    assert not self._is_blacklisted(sender), "TestUSDC: sender is blacklisted"
    assert not self._is_blacklisted(receiver), "TestUSDC: receiver is blacklisted"
    assert receiver != empty(address), "TestUSDC: transfer to the zero address"
    assert self.words[sender] >= amount, "TestUSDC: amount exceeds balance"
    self.words[sender] -= amount
    self.words[receiver] += amount
    log Transfer(sender=sender, receiver=receiver, value=amount)


@internal
def _approve(holder: address, spender: address, amount: uint256):
    assert not self.paused, "TestUSDC: paused"
    assert not self._is_blacklisted(holder), "TestUSDC: owner is blacklisted"
    assert not self._is_blacklisted(spender), "TestUSDC: spender is blacklisted"
    assert spender != empty(address), "TestUSDC: approve to the zero address"
    self.allowance[holder][spender] = amount
    log Approval(owner=holder, spender=spender, value=amount)


@view
@internal
def _require_signed(signer: address, struct_hash: bytes32, signature: Bytes[SIGNATURE_MAX]):
    digest: bytes32 = keccak256(concat(x"1901", self._domain_separator(), struct_hash))
    if signer.is_contract:
        succeeded: bool = False
        answer: Bytes[32] = b""
        succeeded, answer = raw_call(
            signer, abi_encode(digest, signature, method_id=method_id("isValidSignature(bytes32,bytes)")),
            max_outsize=32, is_static_call=True, revert_on_failure=False,
        )
        assert succeeded and len(answer) == 32, "TestUSDC: invalid signature"
        assert convert(answer, bytes32) == ERC1271_MAGIC, "TestUSDC: invalid signature"
        return
    assert len(signature) == 65, "TestUSDC: invalid signature length"
    s: uint256 = convert(slice(signature, 32, 32), uint256)
    assert s <= S_MAX, "TestUSDC: signature s is not canonical"
    v: uint256 = convert(slice(signature, 64, 1), uint256)
    recovered: address = ecrecover(digest, v, convert(extract32(signature, 0), uint256), s)
    assert recovered != empty(address) and recovered == signer, "TestUSDC: invalid signature"


@pure
@internal
def _packed(v: uint8, r: bytes32, s: bytes32) -> Bytes[65]:
    return concat(r, s, convert(v, bytes1))


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
    assert not self._is_blacklisted(msg.sender), "TestUSDC: spender is blacklisted"
    allowed: uint256 = self.allowance[sender][msg.sender]
    assert allowed >= amount, "TestUSDC: amount exceeds allowance"
    self.allowance[sender][msg.sender] = allowed - amount
    self._move(sender, receiver, amount)
    return True


@internal
def _permit(holder: address, spender: address, amount: uint256, deadline: uint256, signature: Bytes[SIGNATURE_MAX]):
    assert block.timestamp <= deadline, "TestUSDC: permit is expired"
    nonce: uint256 = self.nonces[holder]
    self.nonces[holder] = nonce + 1
    self._require_signed(
        holder, keccak256(abi_encode(PERMIT_TYPE_HASH, holder, spender, amount, nonce, deadline)), signature
    )
    self._approve(holder, spender, amount)


@internal
def _use_authorization(authorizer: address, nonce: bytes32, valid_after: uint256, valid_before: uint256):
    assert block.timestamp > valid_after, "TestUSDC: authorization is not yet valid"
    assert block.timestamp < valid_before, "TestUSDC: authorization is expired"
    assert not self.authorizationState[authorizer][nonce], "TestUSDC: authorization is used or canceled"
    self.authorizationState[authorizer][nonce] = True
    log AuthorizationUsed(authorizer=authorizer, nonce=nonce)


@internal
def _move_authorized(
    type_hash: bytes32, sender: address, receiver: address, amount: uint256, valid_after: uint256,
    valid_before: uint256, nonce: bytes32, signature: Bytes[SIGNATURE_MAX],
):
    if type_hash == RECEIVE_TYPE_HASH:
        assert receiver == msg.sender, "TestUSDC: caller must be the payee"
    self._require_signed(
        sender,
        keccak256(abi_encode(type_hash, sender, receiver, amount, valid_after, valid_before, nonce)),
        signature,
    )
    self._use_authorization(sender, nonce, valid_after, valid_before)
    self._move(sender, receiver, amount)


@internal
def _cancel(authorizer: address, nonce: bytes32, signature: Bytes[SIGNATURE_MAX]):
    assert not self.authorizationState[authorizer][nonce], "TestUSDC: authorization is used or canceled"
    self._require_signed(authorizer, keccak256(abi_encode(CANCEL_TYPE_HASH, authorizer, nonce)), signature)
    self.authorizationState[authorizer][nonce] = True
    log AuthorizationCanceled(authorizer=authorizer, nonce=nonce)


@external
def permit(holder: address, spender: address, amount: uint256, deadline: uint256, v: uint8, r: bytes32, s: bytes32):
    self._permit(holder, spender, amount, deadline, self._packed(v, r, s))


@external
def transferWithAuthorization(
    sender: address, receiver: address, amount: uint256, validAfter: uint256, validBefore: uint256,
    nonce: bytes32, v: uint8, r: bytes32, s: bytes32,
):
    self._move_authorized(
        TRANSFER_TYPE_HASH, sender, receiver, amount, validAfter, validBefore, nonce, self._packed(v, r, s)
    )


@external
def receiveWithAuthorization(
    sender: address, receiver: address, amount: uint256, validAfter: uint256, validBefore: uint256,
    nonce: bytes32, v: uint8, r: bytes32, s: bytes32,
):
    self._move_authorized(
        RECEIVE_TYPE_HASH, sender, receiver, amount, validAfter, validBefore, nonce, self._packed(v, r, s)
    )


@external
def cancelAuthorization(authorizer: address, nonce: bytes32, v: uint8, r: bytes32, s: bytes32):
    self._cancel(authorizer, nonce, self._packed(v, r, s))


# The forms with bytes. Their arguments are some static words, then the signature.


@view
@internal
def _signature_after(words: uint256) -> Bytes[SIGNATURE_MAX]:
    offset: uint256 = convert(slice(msg.data, 4 + 32 * words, 32), uint256)
    assert offset == 32 * (words + 1), "TestUSDC: malformed call"
    size: uint256 = convert(slice(msg.data, 4 + offset, 32), uint256)
    if size == 65:
        return slice(msg.data, 36 + offset, 65)
    assert size <= 32 * SIGNATURE_WORDS_MAX, "TestUSDC: signature is too long"
    parts: DynArray[bytes32, SIGNATURE_WORDS_MAX] = []
    for part: uint256 in range((size + 31) // 32, bound=SIGNATURE_WORDS_MAX):
        parts.append(convert(slice(msg.data, 36 + offset + 32 * part, 32), bytes32))
    return slice(abi_encode(parts), 64, size)


@internal
def _move_from_call_data(type_hash: bytes32):
    sender: address = empty(address)
    receiver: address = empty(address)
    amount: uint256 = 0
    valid_after: uint256 = 0
    valid_before: uint256 = 0
    nonce: bytes32 = empty(bytes32)
    sender, receiver, amount, valid_after, valid_before, nonce = abi_decode(
        slice(msg.data, 4, 192), (address, address, uint256, uint256, uint256, bytes32)
    )
    self._move_authorized(
        type_hash, sender, receiver, amount, valid_after, valid_before, nonce, self._signature_after(6)
    )


@external
def __default__():
    assert len(msg.data) >= 4, "TestUSDC: no such function"
    called: bytes4 = convert(slice(msg.data, 0, 4), bytes4)
    if called == method_id(
        "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)", output_type=bytes4
    ):
        self._move_from_call_data(TRANSFER_TYPE_HASH)
    elif called == method_id(
        "receiveWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)", output_type=bytes4
    ):
        self._move_from_call_data(RECEIVE_TYPE_HASH)
    elif called == method_id("permit(address,address,uint256,uint256,bytes)", output_type=bytes4):
        holder: address = empty(address)
        spender: address = empty(address)
        amount: uint256 = 0
        deadline: uint256 = 0
        holder, spender, amount, deadline = abi_decode(
            slice(msg.data, 4, 128), (address, address, uint256, uint256)
        )
        self._permit(holder, spender, amount, deadline, self._signature_after(4))
    elif called == method_id("cancelAuthorization(address,bytes32,bytes)", output_type=bytes4):
        authorizer: address = empty(address)
        nonce: bytes32 = empty(bytes32)
        authorizer, nonce = abi_decode(slice(msg.data, 4, 64), (address, bytes32))
        self._cancel(authorizer, nonce, self._signature_after(2))
    else:
        raise "TestUSDC: no such function"


@view
@internal
def _require_owner():
    assert msg.sender == self.owner, "TestUSDC: caller is not the owner"


@external
def mint(receiver: address, amount: uint256) -> bool:
    self._require_owner()
    assert not self.paused, "TestUSDC: paused"
    assert not self._is_blacklisted(receiver), "TestUSDC: receiver is blacklisted"
    assert receiver != empty(address), "TestUSDC: mint to the zero address"
    self.totalSupply += amount
    assert self.totalSupply < BLACKLISTED, "TestUSDC: supply over 255 bits"
    self.words[receiver] += amount
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
    balance: uint256 = self.words[account] & (BLACKLISTED - 1)
    self.words[account] = (balance | BLACKLISTED) if blacklisted else balance
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
