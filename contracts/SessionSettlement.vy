# pragma version 0.4.3
# pragma evm-version cancun
"""
@title SessionSettlement: moves the charge of one ended video session from its payer to its payee, once.
@license Apache-2.0
@notice The payer approves this contract on the token. A relayer presents each ended session; the contract
        checks the arithmetic and takes the whole charge or nothing. A part whose receiver refuses it (a
        blacklisted address) stays here as that receiver's credit; it never stops the other part.
@dev    WHO IS TRUSTED. A relayer decides which sessions exist. Where consent is not required, a relayer can
        take up to the allowance of any payer, at most SESSION_CAP each time. The owner names relayers, so
        the owner can come to the same power, but not before ADMIN_DELAY seconds after RelayerProposed:
        the time in which payers can see the event and lower their allowance. The owner pauses at once.
        A payer limits this trust by the allowance, by setLimits, or by signing a SessionAuthorization
        (EIP-712) for each session; a deployment with CONSENT_REQUIRED settles no charge without one.
"""

from ethereum.ercs import IERC20

interface IERC1271:
    def isValidSignature(digest: bytes32, signature: Bytes[4096]) -> bytes4: view

# What the payer signs for one session. `payer` is in it so that a signature of a contract wallet can not be
# carried to another wallet of the same owner.
struct Consent:
    maxTotal: uint256
    maxFeeBps: uint256
    deadline: uint256
    signature: Bytes[4096]

# A session that costs nothing, as settleMany takes it.
struct FreeSession:
    sessionIdHash: bytes32
    payer: address
    payee: address
    ratePerSecond: uint256
    platformFeeBps: uint256

struct Limits:
    perSession: uint256
    perDay: uint256
    isSet: bool

event Settled:
    sessionIdHash: indexed(bytes32)
    payer: indexed(address)
    payee: indexed(address)
    toAmount: uint256
    feeAmount: uint256
    ratePerSecond: uint256
    chargeableSeconds: uint256
    platformFeeBps: uint256

event LimitsSet:
    payer: indexed(address)
    perSession: uint256
    perDay: uint256
    isSet: bool

event RelayerProposed:
    relayer: indexed(address)
    allowedFrom: uint256

event RelayerSet:
    relayer: indexed(address)
    allowed: bool

event Credited:
    receiver: indexed(address)
    sessionIdHash: indexed(bytes32)
    amount: uint256

event Withdrawn:
    receiver: indexed(address)
    amount: uint256

event Paused:
    paused: bool

event OwnershipTransferStarted:
    previous: indexed(address)
    pending: indexed(address)
    acceptableFrom: uint256

event OwnershipTransferred:
    previous: indexed(address)
    owner: indexed(address)

BASIS_POINTS: constant(uint256) = 10_000
DAY: constant(uint256) = 86_400
NAME: constant(String[32]) = "SessionSettlement"
VERSION: constant(String[4]) = "1"
ERC1271_MAGIC: constant(bytes4) = 0x1626ba7e
S_MAX: constant(uint256) = 57896044618658097711785492504343953926418782139537452191302581570759080747168
DOMAIN_TYPE_HASH: constant(bytes32) = keccak256(
    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
)
AUTHORIZATION_TYPE_HASH: constant(bytes32) = keccak256(
    "SessionAuthorization(bytes32 sessionIdHash,address from,address to,uint256 maxTotal,uint256 ratePerSecond,uint256 maxFeeBps,uint256 deadline)"
)

TOKEN: public(immutable(address))
FEE_RECEIVER: public(immutable(address))
MAX_FEE_BPS: public(immutable(uint256))
SESSION_CAP: public(immutable(uint256))
CONSENT_REQUIRED: public(immutable(bool))
ADMIN_DELAY: public(immutable(uint256))

owner: public(address)
pendingOwner: public(address)
paused: public(bool)
ownershipAcceptableFrom: public(uint256)
isRelayer: public(HashMap[address, bool])
# When a proposed relayer may be allowed; 0 for one that is not proposed.
relayerAllowedFrom: public(HashMap[address, uint256])
# Parts that their receivers could not take yet.
credit: public(HashMap[address, uint256])
settled: public(HashMap[bytes32, bool])
limits: public(HashMap[address, Limits])
spentOnDay: public(HashMap[address, HashMap[uint256, uint256]])


@deploy
def __init__(
    token: address, owner: address, relayer: address, fee_receiver: address, max_fee_bps: uint256,
    session_cap: uint256, consent_required: bool, admin_delay: uint256,
):
    assert token != empty(address) and owner != empty(address), "SessionSettlement: zero address"
    assert relayer != empty(address) and fee_receiver != empty(address), "SessionSettlement: zero address"
    assert max_fee_bps <= BASIS_POINTS, "SessionSettlement: fee bound over 100 %"
    TOKEN = token
    FEE_RECEIVER = fee_receiver
    MAX_FEE_BPS = max_fee_bps
    SESSION_CAP = session_cap
    CONSENT_REQUIRED = consent_required
    ADMIN_DELAY = admin_delay
    self.owner = owner
    self.isRelayer[relayer] = True
    log OwnershipTransferred(previous=empty(address), owner=owner)
    log RelayerSet(relayer=relayer, allowed=True)


@view
@internal
def _domain_separator() -> bytes32:
    return keccak256(
        abi_encode(DOMAIN_TYPE_HASH, keccak256(NAME), keccak256(VERSION), chain.id, self)
    )


@view
@external
def DOMAIN_SEPARATOR() -> bytes32:
    return self._domain_separator()


@view
@internal
def _require_signed(signer: address, digest: bytes32, signature: Bytes[4096]):
    # A key's own signature counts first: an account with delegated code (EIP-7702) still has its key. No key
    # exists for the address of a contract, so this gives a contract wallet nothing.
    if len(signature) == 65:
        r: bytes32 = extract32(signature, 0)
        s: uint256 = convert(slice(signature, 32, 32), uint256)
        v: uint256 = convert(slice(signature, 64, 1), uint256)
        if not signer.is_contract:
            assert s <= S_MAX, "SessionSettlement: consent signature is not canonical"
        if s <= S_MAX:
            recovered: address = ecrecover(digest, v, convert(r, uint256), s)
            if recovered != empty(address) and recovered == signer:
                return
    assert signer.is_contract, "SessionSettlement: consent of somebody else"
    answer: bytes4 = staticcall IERC1271(signer).isValidSignature(digest, signature)
    assert answer == ERC1271_MAGIC, "SessionSettlement: consent refused by the payer's wallet"


@view
@internal
def _require_consent(
    session_id_hash: bytes32, payer: address, payee: address, total: uint256, rate_per_second: uint256,
    platform_fee_bps: uint256, consent: Consent,
):
    if len(consent.signature) == 0:
        assert not CONSENT_REQUIRED, "SessionSettlement: consent required"
        return
    assert block.timestamp <= consent.deadline, "SessionSettlement: consent expired"
    assert total <= consent.maxTotal, "SessionSettlement: charge over the consented total"
    assert platform_fee_bps <= consent.maxFeeBps, "SessionSettlement: fee over the consented bound"
    struct_hash: bytes32 = keccak256(
        abi_encode(
            AUTHORIZATION_TYPE_HASH, session_id_hash, payer, payee, consent.maxTotal, rate_per_second,
            consent.maxFeeBps, consent.deadline,
        )
    )
    self._require_signed(
        payer, keccak256(concat(x"1901", self._domain_separator(), struct_hash)), consent.signature
    )


@internal
def _count_against_limits(payer: address, total: uint256):
    # Counted also without limits, so that limits set in the middle of a day bound that whole day.
    day: uint256 = block.timestamp // DAY
    spent: uint256 = self.spentOnDay[payer][day] + total
    self.spentOnDay[payer][day] = spent
    limits: Limits = self.limits[payer]
    if limits.isSet:
        assert total <= limits.perSession, "SessionSettlement: over the payer's session limit"
        assert spent <= limits.perDay, "SessionSettlement: over the payer's day limit"


@internal
def _pull(session_id_hash: bytes32, payer: address, receiver: address, amount: uint256):
    if amount == 0:
        return
    succeeded: bool = False
    answer: Bytes[32] = b""
    succeeded, answer = raw_call(
        TOKEN, abi_encode(payer, receiver, amount, method_id=method_id("transferFrom(address,address,uint256)")),
        max_outsize=32, revert_on_failure=False,
    )
    if succeeded and (len(answer) == 0 or convert(answer, uint256) == 1):
        return
    # The payer's fault (balance, allowance, a block on the payer) fails here too, and reverts everything.
    kept: bool = extcall IERC20(TOKEN).transferFrom(payer, self, amount, default_return_value=True)
    assert kept, "SessionSettlement: token refused"
    self.credit[receiver] += amount
    log Credited(receiver=receiver, sessionIdHash=session_id_hash, amount=amount)


@internal
def _require_relayer():
    assert not self.paused, "SessionSettlement: paused"
    assert self.isRelayer[msg.sender], "SessionSettlement: caller is not a relayer"


@external
@nonreentrant
def settle(
    sessionIdHash: bytes32, payer: address, payee: address, toAmount: uint256, feeAmount: uint256,
    ratePerSecond: uint256, chargeableSeconds: uint256, platformFeeBps: uint256, consent: Consent,
):
    """
    @notice Settle one session: payer -> payee toAmount, payer -> fee receiver feeAmount, both or neither.
    @dev    Payer and payee may be one wallet: one person may own both workspaces, and its session must settle.
            Watchers rely on the order of logs: the payee's transfer, the fee's transfer, then Settled.
    """
    self._require_relayer()
    assert not self.settled[sessionIdHash], "SessionSettlement: already settled"
    self.settled[sessionIdHash] = True

    assert payer != empty(address) and payee != empty(address), "SessionSettlement: zero address"
    assert payer != self and payee != self, "SessionSettlement: the contract is no party"
    total: uint256 = toAmount + feeAmount
    assert total == ratePerSecond * chargeableSeconds, "SessionSettlement: total is not rate times seconds"
    assert platformFeeBps <= MAX_FEE_BPS, "SessionSettlement: fee over the bound"
    assert feeAmount == total * platformFeeBps // BASIS_POINTS, "SessionSettlement: fee is not floored"
    assert total <= SESSION_CAP, "SessionSettlement: over the session cap"
    self._require_consent(sessionIdHash, payer, payee, total, ratePerSecond, platformFeeBps, consent)
    self._count_against_limits(payer, total)

    self._pull(sessionIdHash, payer, payee, toAmount)
    self._pull(sessionIdHash, payer, FEE_RECEIVER, feeAmount)
    log Settled(
        sessionIdHash=sessionIdHash, payer=payer, payee=payee, toAmount=toAmount, feeAmount=feeAmount,
        ratePerSecond=ratePerSecond, chargeableSeconds=chargeableSeconds, platformFeeBps=platformFeeBps,
    )


@external
@nonreentrant
def settleMany(sessions: DynArray[FreeSession, 100]):
    """
    @notice Record sessions that cost nothing. Nothing moves, so no consent is needed.
    @dev    A session that is settled already is passed over: it must not stop the others.
    """
    self._require_relayer()
    for session: FreeSession in sessions:
        if self.settled[session.sessionIdHash]:
            continue
        self.settled[session.sessionIdHash] = True
        log Settled(
            sessionIdHash=session.sessionIdHash, payer=session.payer, payee=session.payee, toAmount=0, feeAmount=0,
            ratePerSecond=session.ratePerSecond, chargeableSeconds=0, platformFeeBps=session.platformFeeBps,
        )


@external
@nonreentrant
def withdraw(receiver: address):
    """
    @notice Pay a receiver's credit out to that receiver; anyone may call it.
    """
    amount: uint256 = self.credit[receiver]
    assert amount > 0, "SessionSettlement: no credit"
    self.credit[receiver] = 0
    moved: bool = extcall IERC20(TOKEN).transfer(receiver, amount, default_return_value=True)
    assert moved, "SessionSettlement: token refused"
    log Withdrawn(receiver=receiver, amount=amount)


@external
def setLimits(perSession: uint256, perDay: uint256):
    """
    @notice Bound what may be taken from the caller per session and per UTC day; zero forbids any charge.
    """
    self.limits[msg.sender] = Limits(perSession=perSession, perDay=perDay, isSet=True)
    log LimitsSet(payer=msg.sender, perSession=perSession, perDay=perDay, isSet=True)


@external
def clearLimits():
    self.limits[msg.sender] = empty(Limits)
    log LimitsSet(payer=msg.sender, perSession=0, perDay=0, isSet=False)


@view
@internal
def _require_owner():
    assert msg.sender == self.owner, "SessionSettlement: caller is not the owner"


@external
def proposeRelayer(relayer: address):
    """
    @notice Announce a relayer. It can be allowed ADMIN_DELAY seconds later.
    """
    self._require_owner()
    assert relayer != empty(address), "SessionSettlement: zero address"
    self.relayerAllowedFrom[relayer] = block.timestamp + ADMIN_DELAY
    log RelayerProposed(relayer=relayer, allowedFrom=block.timestamp + ADMIN_DELAY)


@external
def allowRelayer(relayer: address):
    """
    @notice Allow a relayer whose delay has passed.
    """
    self._require_owner()
    allowed_from: uint256 = self.relayerAllowedFrom[relayer]
    assert allowed_from != 0, "SessionSettlement: relayer was not proposed"
    assert block.timestamp >= allowed_from, "SessionSettlement: relayer's delay has not passed"
    self.relayerAllowedFrom[relayer] = 0
    self.isRelayer[relayer] = True
    log RelayerSet(relayer=relayer, allowed=True)


@external
def removeRelayer(relayer: address):
    """
    @notice Forbid a relayer, or withdraw its proposal, at once.
    """
    self._require_owner()
    self.relayerAllowedFrom[relayer] = 0
    self.isRelayer[relayer] = False
    log RelayerSet(relayer=relayer, allowed=False)


@external
def setPaused(paused: bool):
    self._require_owner()
    self.paused = paused
    log Paused(paused=paused)


@external
def transferOwnership(pending: address):
    self._require_owner()
    self.pendingOwner = pending
    self.ownershipAcceptableFrom = block.timestamp + ADMIN_DELAY
    log OwnershipTransferStarted(
        previous=self.owner, pending=pending, acceptableFrom=block.timestamp + ADMIN_DELAY
    )


@external
def acceptOwnership():
    assert msg.sender == self.pendingOwner, "SessionSettlement: caller is not the pending owner"
    assert block.timestamp >= self.ownershipAcceptableFrom, "SessionSettlement: transfer's delay has not passed"
    log OwnershipTransferred(previous=self.owner, owner=msg.sender)
    self.owner = msg.sender
    self.pendingOwner = empty(address)
