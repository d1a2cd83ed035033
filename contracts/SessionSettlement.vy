# pragma version 0.4.3
# pragma evm-version cancun
"""
@title SessionSettlement: moves the charge of one ended video session from its payer to its payee, once.
@license Apache-2.0
@notice The payer approves this contract on the token. A relayer presents each ended session; the contract
        checks the arithmetic itself, takes the whole charge or nothing, and never holds a token.
        The owner may pause it and name relayers; the owner can not move funds.
@dev    A payer who does not want to trust the relayer within the allowance sets limits (setLimits) or signs
        a SessionAuthorization (EIP-712); a deployment with consentRequired settles nothing without one.
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

event RelayerSet:
    relayer: indexed(address)
    allowed: bool

event Paused:
    paused: bool

event OwnershipTransferStarted:
    previous: indexed(address)
    pending: indexed(address)

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

owner: public(address)
pendingOwner: public(address)
paused: public(bool)
isRelayer: public(HashMap[address, bool])
settled: public(HashMap[bytes32, bool])
limits: public(HashMap[address, Limits])
spentOnDay: public(HashMap[address, HashMap[uint256, uint256]])


@deploy
def __init__(
    token: address, owner: address, relayer: address, fee_receiver: address, max_fee_bps: uint256,
    session_cap: uint256, consent_required: bool,
):
    assert token != empty(address) and owner != empty(address), "SessionSettlement: zero address"
    assert relayer != empty(address) and fee_receiver != empty(address), "SessionSettlement: zero address"
    assert max_fee_bps <= BASIS_POINTS, "SessionSettlement: fee bound over 100 %"
    TOKEN = token
    FEE_RECEIVER = fee_receiver
    MAX_FEE_BPS = max_fee_bps
    SESSION_CAP = session_cap
    CONSENT_REQUIRED = consent_required
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
    if signer.is_contract:
        answer: bytes4 = staticcall IERC1271(signer).isValidSignature(digest, signature)
        assert answer == ERC1271_MAGIC, "SessionSettlement: consent refused by the payer's wallet"
        return
    assert len(signature) == 65, "SessionSettlement: consent signature length"
    r: bytes32 = extract32(signature, 0)
    s: uint256 = convert(slice(signature, 32, 32), uint256)
    v: uint256 = convert(slice(signature, 64, 1), uint256)
    assert s <= S_MAX, "SessionSettlement: consent signature is not canonical"
    recovered: address = ecrecover(digest, v, convert(r, uint256), s)
    assert recovered != empty(address) and recovered == signer, "SessionSettlement: consent of somebody else"


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
def _pull(payer: address, receiver: address, amount: uint256):
    if amount == 0:
        return
    moved: bool = extcall IERC20(TOKEN).transferFrom(payer, receiver, amount, default_return_value=True)
    assert moved, "SessionSettlement: token refused"


@external
@nonreentrant
def settle(
    sessionIdHash: bytes32, payer: address, payee: address, toAmount: uint256, feeAmount: uint256,
    ratePerSecond: uint256, chargeableSeconds: uint256, platformFeeBps: uint256, consent: Consent,
):
    """
    @notice Settle one session: payer -> payee toAmount, payer -> fee receiver feeAmount, both or neither.
    @dev    Payer and payee may be one wallet: one person may own both workspaces, and its session must settle.
    """
    assert not self.paused, "SessionSettlement: paused"
    assert self.isRelayer[msg.sender], "SessionSettlement: caller is not a relayer"
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

    self._pull(payer, payee, toAmount)
    self._pull(payer, FEE_RECEIVER, feeAmount)
    log Settled(
        sessionIdHash=sessionIdHash, payer=payer, payee=payee, toAmount=toAmount, feeAmount=feeAmount,
        ratePerSecond=ratePerSecond, chargeableSeconds=chargeableSeconds, platformFeeBps=platformFeeBps,
    )


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
def setRelayer(relayer: address, allowed: bool):
    self._require_owner()
    assert relayer != empty(address), "SessionSettlement: zero address"
    self.isRelayer[relayer] = allowed
    log RelayerSet(relayer=relayer, allowed=allowed)


@external
def setPaused(paused: bool):
    self._require_owner()
    self.paused = paused
    log Paused(paused=paused)


@external
def transferOwnership(pending: address):
    self._require_owner()
    self.pendingOwner = pending
    log OwnershipTransferStarted(previous=self.owner, pending=pending)


@external
def acceptOwnership():
    assert msg.sender == self.pendingOwner, "SessionSettlement: caller is not the pending owner"
    log OwnershipTransferred(previous=self.owner, owner=msg.sender)
    self.owner = msg.sender
    self.pendingOwner = empty(address)
