# pragma version 0.4.3
# pragma evm-version cancun
"""
@title SessionEscrow: holds the highest charge of a video session from before the video until its end.
@license Apache-2.0
@notice The payer's signature opens a hold, the meter's signature charges it, and who sends a transaction has no
        power. A hold ends once: by capture or claim (payee and fee are paid, the rest returns to the payer), or by
        reclaim (everything returns to the payer).
@dev    INVARIANTS. Tests check each of them by its number.
        I1 The balance is totalHeld + totalCredit + stray, and stray >= 0. Stray is money that came without a hold.
        I2 The state of a session goes from unknown to hold to closed, and never back.
        I3 What payee, fee receiver and payer get or are credited for a hold is exactly its maxAmount.
        I4 A charge is at most ratePerSecond * (seconds since openedAt + SLACK), and at most maxAmount.
        I5 No payer's balance or allowance falls without a signature of that payer for this contract.
        I6 From latestEnd + RECLAIM_DELAY on, anybody can return an open hold to its payer, whatever others do.
        I7 A pause stops opens and extensions only.
        I8 Who sends a call changes nothing for a hold, except that captureMany of a meter needs no signature.
        I9 The holds opened and extended under one mandate on one UTC day are at most its maxPerDay.
        I10 A statement that is not final charges nothing before latestEnd + INTERIM_DELAY, and nobody returns a hold
            before latestEnd + RECLAIM_DELAY.
        I11 A meter's signature opens or charges only what it names: terms and payee, or hold, seconds and head, for
            this contract on this chain. A payee that the terms name is the payee.

        latestEnd = openedAt + maxAmount // ratePerSecond.

        WHO IS TRUSTED. A meter decides how many seconds a hold is charged, within I4, and names the payee where the
        payer's terms leave it open. For openExact it chooses the terms, up to MAX_RATE and the amount that the payer
        sent. It decides who gets stray money. A statement of a removed meter is void at once. The owner names meters, but not
        before ADMIN_DELAY seconds after MeterProposed. It removes meters and pauses at once, and moves no money.
        The token is USDC: it moves the exact amount or nothing, and calls no receiver.
"""

from ethereum.ercs import IERC20

interface IERC1271:
    def isValidSignature(digest: bytes32, signature: Bytes[2048]) -> bytes4: view

# USDC since version 2.2, whose authorizations carry their signature as bytes.
interface FiatToken:
    def receiveWithAuthorization(
        sender: address, receiver: address, amount: uint256, validAfter: uint256, validBefore: uint256,
        nonce: bytes32, signature: Bytes[2048],
    ): nonpayable
    def transferWithAuthorization(
        sender: address, receiver: address, amount: uint256, validAfter: uint256, validBefore: uint256,
        nonce: bytes32, signature: Bytes[2048],
    ): nonpayable

# What the payer agrees to. With an empty payee, the meter names the payee.
struct Terms:
    sessionIdHash: bytes32
    payer: address
    payee: address
    maxAmount: uint256
    ratePerSecond: uint256
    feeBps: uint256
    openBy: uint256

# An open session. The contract stores its hash only; each call brings the hold.
struct Hold:
    sessionIdHash: bytes32
    payer: address
    payee: address
    maxAmount: uint256
    ratePerSecond: uint256
    feeBps: uint256
    openedAt: uint256

struct Capture:
    hold: Hold
    cleanSeconds: uint256
    headHash: bytes32

# Consent to many sessions. With an empty delegate, the meter's Opening is enough for each of them.
struct Mandate:
    payer: address
    delegate: address
    maxPerSession: uint256
    maxPerDay: uint256
    maxRatePerSecond: uint256
    maxFeeBps: uint256
    validUntil: uint256
    salt: bytes32

event Opened:
    sessionIdHash: indexed(bytes32)
    payer: indexed(address)
    payee: indexed(address)
    maxAmount: uint256
    ratePerSecond: uint256
    feeBps: uint256
    openedAt: uint256

event Extended:
    sessionIdHash: indexed(bytes32)
    extraAmount: uint256
    maxAmount: uint256

# The same as in SessionSettlement: receipts and their verifiers are valid for both contracts.
event Settled:
    sessionIdHash: indexed(bytes32)
    payer: indexed(address)
    payee: indexed(address)
    toAmount: uint256
    feeAmount: uint256
    ratePerSecond: uint256
    chargeableSeconds: uint256
    platformFeeBps: uint256

event Evidence:
    sessionIdHash: indexed(bytes32)
    headHash: bytes32
    returned: uint256

event Reclaimed:
    sessionIdHash: indexed(bytes32)
    payer: indexed(address)
    amount: uint256

event Skipped:
    sessionIdHash: indexed(bytes32)
    reason: uint256

event Credited:
    receiver: indexed(address)
    sessionIdHash: indexed(bytes32)
    amount: uint256

event Withdrawn:
    receiver: indexed(address)
    amount: uint256

event StrayReturned:
    receiver: indexed(address)
    reference: indexed(bytes32)
    amount: uint256

event MandateRevoked:
    payer: indexed(address)
    mandateHash: indexed(bytes32)

event MeterProposed:
    meter: indexed(address)
    allowedFrom: uint256

event MeterSet:
    meter: indexed(address)
    allowed: bool

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
# No product of amounts, rates and basis points below can overflow.
SESSION_CAP_MAX: constant(uint256) = 2 ** 128
# The service's clock and the chain's differ by a few seconds, and a block's timestamp is not its arrival.
SLACK: constant(uint256) = 30
# Bounds how long a meter can keep a payer's money: this and RECLAIM_DELAY.
MAX_SECONDS: constant(uint256) = 14_400
INTERIM_DELAY: constant(uint256) = 3_600
RECLAIM_DELAY: constant(uint256) = 172_800
CLOSED: constant(bytes32) = 0x0000000000000000000000000000000000000000000000000000000000000001
# Reasons of Skipped.
NO_SUCH_HOLD: constant(uint256) = 1
OVER_TIME: constant(uint256) = 2
OVER_AMOUNT: constant(uint256) = 3

NAME: constant(String[16]) = "SessionEscrow"
VERSION: constant(String[4]) = "1"
ERC1271_MAGIC: constant(bytes4) = 0x1626ba7e
S_MAX: constant(uint256) = 57896044618658097711785492504343953926418782139537452191302581570759080747168
DOMAIN_TYPE_HASH: constant(bytes32) = keccak256(
    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
)
TERMS_TYPE_HASH: constant(bytes32) = keccak256(
    "SessionTerms(bytes32 sessionIdHash,address payer,address payee,uint256 maxAmount,uint256 ratePerSecond,uint256 feeBps,uint256 openBy)"
)
OPENING_TYPE_HASH: constant(bytes32) = keccak256("Opening(bytes32 termsHash,address payee)")
STATEMENT_TYPE_HASH: constant(bytes32) = keccak256(
    "MeterStatement(bytes32 holdHash,uint256 cleanSeconds,bytes32 headHash,bool isFinal)"
)
BATCH_TYPE_HASH: constant(bytes32) = keccak256("CaptureBatch(bytes32 capturesHash)")
EXTENSION_TYPE_HASH: constant(bytes32) = keccak256(
    "Extension(bytes32 holdHash,uint256 extraAmount,uint256 extendBy)"
)
MANDATE_TYPE_HASH: constant(bytes32) = keccak256(
    "Mandate(address payer,address delegate,uint256 maxPerSession,uint256 maxPerDay,uint256 maxRatePerSecond,uint256 maxFeeBps,uint256 validUntil,bytes32 salt)"
)
REVOCATION_TYPE_HASH: constant(bytes32) = keccak256("MandateRevocation(bytes32 mandateHash)")
STRAY_TYPE_HASH: constant(bytes32) = keccak256("StrayReturn(address receiver,uint256 amount,bytes32 reference)")

TOKEN: public(immutable(address))
FEE_RECEIVER: public(immutable(address))
MAX_FEE_BPS: public(immutable(uint256))
SESSION_CAP: public(immutable(uint256))
MAX_RATE: public(immutable(uint256))
ADMIN_DELAY: public(immutable(uint256))

owner: public(address)
pendingOwner: public(address)
paused: public(bool)
ownershipAcceptableFrom: public(uint256)
isMeter: public(HashMap[address, bool])
# When a proposed meter may be allowed; 0 for one that is not proposed.
meterAllowedFrom: public(HashMap[address, uint256])

# 0 for an unknown session, CLOSED, or the hash of the hold.
stateOf: public(HashMap[bytes32, bytes32])
totalHeld: public(uint256)
# Parts that their receivers could not take yet.
credit: public(HashMap[address, uint256])
totalCredit: public(uint256)
isMandateRevoked: public(HashMap[bytes32, bool])
openedOnDay: public(HashMap[bytes32, HashMap[uint256, uint256]])
isStrayReturned: public(HashMap[bytes32, bool])


@deploy
def __init__(
    token: address, owner: address, meter: address, standby_meter: address, fee_receiver: address,
    max_fee_bps: uint256, session_cap: uint256, max_rate: uint256, admin_delay: uint256,
):
    """
    @param standby_meter The second meter's key, for the day on which the first is removed; empty for none.
    @param max_rate The highest rate of a hold. With openExact the payer signs no rate, so this bounds what a stolen
           meter's key can charge for each second until it is removed.
    """
    assert token.is_contract, "SessionEscrow: the token has no code"
    assert owner != empty(address) and meter != empty(address), "SessionEscrow: zero address"
    assert fee_receiver != empty(address), "SessionEscrow: zero address"
    assert max_fee_bps <= BASIS_POINTS, "SessionEscrow: fee bound over 100 %"
    assert session_cap <= SESSION_CAP_MAX, "SessionEscrow: session cap over 128 bits"
    TOKEN = token
    FEE_RECEIVER = fee_receiver
    MAX_FEE_BPS = max_fee_bps
    SESSION_CAP = session_cap
    MAX_RATE = max_rate
    ADMIN_DELAY = admin_delay
    self.owner = owner
    log OwnershipTransferred(previous=empty(address), owner=owner)
    self.isMeter[meter] = True
    log MeterSet(meter=meter, allowed=True)
    if standby_meter != empty(address):
        self.isMeter[standby_meter] = True
        log MeterSet(meter=standby_meter, allowed=True)


# Messages and signatures.


@view
@internal
def _digest(struct_hash: bytes32) -> bytes32:
    # Computed on each use: chain.id may change under a contract when a chain forks.
    separator: bytes32 = keccak256(
        abi_encode(DOMAIN_TYPE_HASH, keccak256(NAME), keccak256(VERSION), chain.id, self)
    )
    return keccak256(concat(x"1901", separator, struct_hash))


@view
@external
def DOMAIN_SEPARATOR() -> bytes32:
    return keccak256(
        abi_encode(DOMAIN_TYPE_HASH, keccak256(NAME), keccak256(VERSION), chain.id, self)
    )


@view
@internal
def _require_meter(struct_hash: bytes32, signature: Bytes[65]):
    assert len(signature) == 65, "SessionEscrow: meter's signature has not 65 bytes"
    signer: address = ecrecover(
        self._digest(struct_hash), convert(slice(signature, 64, 1), uint256),
        convert(extract32(signature, 0), uint256), convert(slice(signature, 32, 32), uint256),
    )
    assert signer != empty(address) and self.isMeter[signer], "SessionEscrow: not signed by a meter"


@view
@internal
def _require_signed(signer: address, struct_hash: bytes32, signature: Bytes[2048]):
    digest: bytes32 = self._digest(struct_hash)
    # A key's own signature counts first: an account with delegated code (EIP-7702) still has its key. No key
    # exists for the address of a contract, so this gives a contract wallet nothing.
    if len(signature) == 65:
        s: uint256 = convert(slice(signature, 32, 32), uint256)
        v: uint256 = convert(slice(signature, 64, 1), uint256)
        if s <= S_MAX:
            recovered: address = ecrecover(digest, v, convert(extract32(signature, 0), uint256), s)
            if recovered != empty(address) and recovered == signer:
                return
    assert signer.is_contract, "SessionEscrow: signature of somebody else"
    answer: bytes4 = staticcall IERC1271(signer).isValidSignature(digest, signature)
    assert answer == ERC1271_MAGIC, "SessionEscrow: signature refused by the wallet"


@pure
@internal
def _terms_hash(terms: Terms) -> bytes32:
    return keccak256(abi_encode(TERMS_TYPE_HASH, terms))


@pure
@internal
def _hold_hash(hold: Hold) -> bytes32:
    return keccak256(abi_encode(hold))


@pure
@internal
def _mandate_hash(mandate: Mandate) -> bytes32:
    return keccak256(abi_encode(MANDATE_TYPE_HASH, mandate))


@pure
@internal
def _latest_end(hold: Hold) -> uint256:
    return hold.openedAt + hold.maxAmount // hold.ratePerSecond


# Money.


@internal
def _pay(session_id_hash: bytes32, receiver: address, amount: uint256):
    # A sender can not turn a payment into a credit by a low gas limit: the 1/64 that is left after the inner call
    # ran out of gas (EIP-150) does not pay for writing the credit.
    if amount == 0:
        return
    succeeded: bool = False
    answer: Bytes[32] = b""
    succeeded, answer = raw_call(
        TOKEN, abi_encode(receiver, amount, method_id=method_id("transfer(address,uint256)")),
        max_outsize=32, revert_on_failure=False,
    )
    if succeeded and (len(answer) == 0 or convert(answer, uint256) == 1):
        return
    self.credit[receiver] += amount
    self.totalCredit += amount
    log Credited(receiver=receiver, sessionIdHash=session_id_hash, amount=amount)


@internal
def _pull(payer: address, amount: uint256):
    moved: bool = extcall IERC20(TOKEN).transferFrom(payer, self, amount, default_return_value=True)
    assert moved, "SessionEscrow: token refused"


@internal
def _close(hold: Hold, clean_seconds: uint256, head_hash: bytes32) -> uint256:
    # Returns the fee, which the caller pays. The caller has checked hold and seconds, and lowers totalHeld.
    session_id_hash: bytes32 = hold.sessionIdHash
    self.stateOf[session_id_hash] = CLOSED
    total: uint256 = clean_seconds * hold.ratePerSecond
    fee: uint256 = total * hold.feeBps // BASIS_POINTS
    self._pay(session_id_hash, hold.payee, total - fee)
    self._pay(session_id_hash, hold.payer, hold.maxAmount - total)
    log Settled(
        sessionIdHash=session_id_hash, payer=hold.payer, payee=hold.payee, toAmount=total - fee, feeAmount=fee,
        ratePerSecond=hold.ratePerSecond, chargeableSeconds=clean_seconds, platformFeeBps=hold.feeBps,
    )
    log Evidence(sessionIdHash=session_id_hash, headHash=head_hash, returned=hold.maxAmount - total)
    return fee


@view
@internal
def _objection(hold: Hold, clean_seconds: uint256) -> uint256:
    # A hold with a matching hash was checked when it was opened, so nothing here can overflow.
    if self.stateOf[hold.sessionIdHash] != self._hold_hash(hold):
        return NO_SUCH_HOLD
    if clean_seconds > block.timestamp - hold.openedAt + SLACK:
        return OVER_TIME
    if clean_seconds > hold.maxAmount // hold.ratePerSecond:
        return OVER_AMOUNT
    return 0


# Opening.


@view
@internal
def _require_bounds(max_amount: uint256, rate_per_second: uint256):
    assert rate_per_second > 0, "SessionEscrow: rate is 0"
    assert rate_per_second <= MAX_RATE, "SessionEscrow: over the highest rate"
    assert max_amount <= SESSION_CAP, "SessionEscrow: over the session cap"
    assert max_amount // rate_per_second > 0, "SessionEscrow: amount is less than a second"
    assert max_amount // rate_per_second <= MAX_SECONDS, "SessionEscrow: over the longest session"


@internal
def _open(terms: Terms, payee: address, meter_signature: Bytes[65]) -> bytes32:
    # Returns the hash of the terms. The caller checks the payer's signature and takes the money.
    assert not self.paused, "SessionEscrow: paused"
    assert self.stateOf[terms.sessionIdHash] == empty(bytes32), "SessionEscrow: session is known"
    assert block.timestamp < terms.openBy, "SessionEscrow: terms expired"
    assert terms.payer != empty(address) and payee != empty(address), "SessionEscrow: zero address"
    assert terms.payer != self and payee != self, "SessionEscrow: the contract is no party"
    assert terms.payee == empty(address) or terms.payee == payee, "SessionEscrow: payee is not that of the terms"
    assert terms.feeBps <= MAX_FEE_BPS, "SessionEscrow: fee over the bound"
    self._require_bounds(terms.maxAmount, terms.ratePerSecond)
    terms_hash: bytes32 = self._terms_hash(terms)
    self._require_meter(keccak256(abi_encode(OPENING_TYPE_HASH, terms_hash, payee)), meter_signature)

    hold: Hold = Hold(
        sessionIdHash=terms.sessionIdHash, payer=terms.payer, payee=payee, maxAmount=terms.maxAmount,
        ratePerSecond=terms.ratePerSecond, feeBps=terms.feeBps, openedAt=block.timestamp,
    )
    self.stateOf[terms.sessionIdHash] = self._hold_hash(hold)
    self.totalHeld += terms.maxAmount
    log Opened(
        sessionIdHash=terms.sessionIdHash, payer=terms.payer, payee=payee, maxAmount=terms.maxAmount,
        ratePerSecond=terms.ratePerSecond, feeBps=terms.feeBps, openedAt=block.timestamp,
    )
    return terms_hash


@external
@nonreentrant
def openWithAuthorization(terms: Terms, payee: address, payerSignature: Bytes[2048], meterSignature: Bytes[65]):
    """
    @notice Open a hold from an EIP-3009 authorization to receive, whose nonce is the hash of the terms.
    @param  payerSignature Of ReceiveWithAuthorization(payer, this, maxAmount, 0, openBy, hash of the terms).
    @param  meterSignature Of Opening, as in all opens.
    """
    terms_hash: bytes32 = self._open(terms, payee, meterSignature)
    extcall FiatToken(TOKEN).receiveWithAuthorization(
        terms.payer, self, terms.maxAmount, 0, terms.openBy, terms_hash, payerSignature
    )


@external
@nonreentrant
def openExact(
    terms: Terms, payee: address, validAfter: uint256, validBefore: uint256, nonce: bytes32,
    payerSignature: Bytes[2048], meterSignature: Bytes[65],
):
    """
    @notice Open a hold from an EIP-3009 authorization to transfer, as x402 clients of the scheme exact sign it.
    @dev    The payer signs amount and receiver only, so the meter chooses the terms. Anybody can send the
            authorization straight to the token; then this reverts and the money is stray.
    """
    self._open(terms, payee, meterSignature)
    extcall FiatToken(TOKEN).transferWithAuthorization(
        terms.payer, self, terms.maxAmount, validAfter, validBefore, nonce, payerSignature
    )


@external
@nonreentrant
def openWithConsent(terms: Terms, payee: address, consent: Bytes[2048], meterSignature: Bytes[65]):
    """
    @notice Open a hold from the payer's allowance, with the payer's signature of the terms.
    """
    terms_hash: bytes32 = self._open(terms, payee, meterSignature)
    self._require_signed(terms.payer, terms_hash, consent)
    self._pull(terms.payer, terms.maxAmount)


@internal
def _use_mandate(
    mandate: Mandate, mandate_signature: Bytes[2048], payer: address, of_session: uint256, added: uint256,
    rate_per_second: uint256, fee_bps: uint256, struct_hash: bytes32, delegate_signature: Bytes[2048],
):
    # `of_session` is all that the session holds, `added` what this call adds to it.
    mandate_hash: bytes32 = self._mandate_hash(mandate)
    assert mandate.payer == payer, "SessionEscrow: mandate of another payer"
    assert not self.isMandateRevoked[mandate_hash], "SessionEscrow: mandate is revoked"
    assert block.timestamp < mandate.validUntil, "SessionEscrow: mandate expired"
    assert of_session <= mandate.maxPerSession, "SessionEscrow: over the mandate's session limit"
    assert rate_per_second <= mandate.maxRatePerSecond, "SessionEscrow: over the mandate's rate"
    assert fee_bps <= mandate.maxFeeBps, "SessionEscrow: over the mandate's fee"
    day: uint256 = block.timestamp // DAY
    opened: uint256 = self.openedOnDay[mandate_hash][day] + added
    assert opened <= mandate.maxPerDay, "SessionEscrow: over the mandate's day limit"
    self.openedOnDay[mandate_hash][day] = opened
    self._require_signed(payer, mandate_hash, mandate_signature)
    if mandate.delegate != empty(address):
        self._require_signed(mandate.delegate, struct_hash, delegate_signature)


@external
@nonreentrant
def openWithMandate(
    terms: Terms, payee: address, mandate: Mandate, mandateSignature: Bytes[2048], delegateSignature: Bytes[2048],
    meterSignature: Bytes[65],
):
    """
    @notice Open a hold from the payer's allowance, within a mandate that the payer signed.
    @param  delegateSignature The delegate's, of the terms; ignored for a mandate without delegate.
    """
    terms_hash: bytes32 = self._open(terms, payee, meterSignature)
    self._use_mandate(
        mandate, mandateSignature, terms.payer, terms.maxAmount, terms.maxAmount, terms.ratePerSecond, terms.feeBps,
        terms_hash, delegateSignature,
    )
    self._pull(terms.payer, terms.maxAmount)


# Extending. Statements of the hold before the extension are void, so each extension has the meter's signature.


@internal
def _extend(hold: Hold, extra: uint256, extend_by: uint256, meter_signature: Bytes[65]) -> bytes32:
    # Returns the hash of the extension. The caller checks the payer's signature and takes the money.
    assert not self.paused, "SessionEscrow: paused"
    hold_hash: bytes32 = self._hold_hash(hold)
    assert self.stateOf[hold.sessionIdHash] == hold_hash, "SessionEscrow: no such hold"
    assert extra > 0, "SessionEscrow: extension by nothing"
    assert block.timestamp < extend_by, "SessionEscrow: extension expired"
    assert block.timestamp < self._latest_end(hold), "SessionEscrow: session is over"
    extension_hash: bytes32 = keccak256(abi_encode(EXTENSION_TYPE_HASH, hold_hash, extra, extend_by))
    self._require_meter(extension_hash, meter_signature)
    grown: Hold = hold
    grown.maxAmount = hold.maxAmount + extra
    self._require_bounds(grown.maxAmount, grown.ratePerSecond)
    self.stateOf[hold.sessionIdHash] = self._hold_hash(grown)
    self.totalHeld += extra
    log Extended(sessionIdHash=hold.sessionIdHash, extraAmount=extra, maxAmount=grown.maxAmount)
    return extension_hash


@external
@nonreentrant
def extendWithAuthorization(
    hold: Hold, extraAmount: uint256, extendBy: uint256, payerSignature: Bytes[2048], meterSignature: Bytes[65]
):
    """
    @notice Add to a hold from an EIP-3009 authorization to receive, whose nonce is the hash of the extension.
    @param  payerSignature Of ReceiveWithAuthorization(payer, this, extraAmount, 0, extendBy, hash of the extension).
    @param  meterSignature Of Extension, as in all extensions.
    """
    extension_hash: bytes32 = self._extend(hold, extraAmount, extendBy, meterSignature)
    extcall FiatToken(TOKEN).receiveWithAuthorization(
        hold.payer, self, extraAmount, 0, extendBy, extension_hash, payerSignature
    )


@external
@nonreentrant
def extendExact(
    hold: Hold, extraAmount: uint256, extendBy: uint256, validAfter: uint256, validBefore: uint256, nonce: bytes32,
    payerSignature: Bytes[2048], meterSignature: Bytes[65],
):
    """
    @notice Add to a hold from an EIP-3009 authorization to transfer (x402).
    """
    self._extend(hold, extraAmount, extendBy, meterSignature)
    extcall FiatToken(TOKEN).transferWithAuthorization(
        hold.payer, self, extraAmount, validAfter, validBefore, nonce, payerSignature
    )


@external
@nonreentrant
def extendWithConsent(
    hold: Hold, extraAmount: uint256, extendBy: uint256, consent: Bytes[2048], meterSignature: Bytes[65]
):
    """
    @notice Add to a hold from the payer's allowance, with the payer's signature of the extension.
    """
    extension_hash: bytes32 = self._extend(hold, extraAmount, extendBy, meterSignature)
    self._require_signed(hold.payer, extension_hash, consent)
    self._pull(hold.payer, extraAmount)


@external
@nonreentrant
def extendWithMandate(
    hold: Hold, extraAmount: uint256, extendBy: uint256, mandate: Mandate, mandateSignature: Bytes[2048],
    delegateSignature: Bytes[2048], meterSignature: Bytes[65],
):
    """
    @notice Add to a hold from the payer's allowance, within a mandate that the payer signed.
    @param  delegateSignature The delegate's, of the extension; ignored for a mandate without delegate.
    """
    extension_hash: bytes32 = self._extend(hold, extraAmount, extendBy, meterSignature)
    self._use_mandate(
        mandate, mandateSignature, hold.payer, hold.maxAmount + extraAmount, extraAmount, hold.ratePerSecond,
        hold.feeBps, extension_hash, delegateSignature,
    )
    self._pull(hold.payer, extraAmount)


# Closing.


@external
@nonreentrant
def captureMany(captures: DynArray[Capture, 50], meterSignature: Bytes[65]):
    """
    @notice Charge ended sessions; 0 seconds return everything. An item that can not be charged is skipped.
    @dev    Watchers rely on the order of logs: for each item the payee's transfer, the payer's, Settled, Evidence;
            one transfer of all fees at the end.
    @param  meterSignature Of CaptureBatch, the hash of the encoded captures; ignored if a meter sends this.
    """
    if not self.isMeter[msg.sender]:
        self._require_meter(
            keccak256(abi_encode(BATCH_TYPE_HASH, keccak256(abi_encode(captures)))), meterSignature
        )
    released: uint256 = 0
    fees: uint256 = 0
    for item: Capture in captures:
        objection: uint256 = self._objection(item.hold, item.cleanSeconds)
        if objection != 0:
            log Skipped(sessionIdHash=item.hold.sessionIdHash, reason=objection)
            continue
        released += item.hold.maxAmount
        fees += self._close(item.hold, item.cleanSeconds, item.headHash)
    self.totalHeld -= released
    self._pay(empty(bytes32), FEE_RECEIVER, fees)


@external
@nonreentrant
def claim(hold: Hold, cleanSeconds: uint256, headHash: bytes32, isFinal: bool, meterSignature: Bytes[65]):
    """
    @notice Charge one session by a statement of the meter; anyone may call it. A statement that is not final is
            accepted from latestEnd + INTERIM_DELAY on, so that the service has its turn before.
    """
    objection: uint256 = self._objection(hold, cleanSeconds)
    assert objection != NO_SUCH_HOLD, "SessionEscrow: no such hold"
    assert objection != OVER_TIME, "SessionEscrow: more seconds than have passed"
    assert objection != OVER_AMOUNT, "SessionEscrow: over the held amount"
    if not isFinal:
        assert block.timestamp >= self._latest_end(hold) + INTERIM_DELAY, "SessionEscrow: interim statement too early"
    self._require_meter(
        keccak256(abi_encode(STATEMENT_TYPE_HASH, self._hold_hash(hold), cleanSeconds, headHash, isFinal)),
        meterSignature,
    )
    self.totalHeld -= hold.maxAmount
    fee: uint256 = self._close(hold, cleanSeconds, headHash)
    self._pay(hold.sessionIdHash, FEE_RECEIVER, fee)


@external
@nonreentrant
def reclaim(hold: Hold):
    """
    @notice Return a hold that nobody closed to its payer; anyone may call it, from latestEnd + RECLAIM_DELAY on.
    """
    assert self.stateOf[hold.sessionIdHash] == self._hold_hash(hold), "SessionEscrow: no such hold"
    assert block.timestamp >= self._latest_end(hold) + RECLAIM_DELAY, "SessionEscrow: reclaim too early"
    self.stateOf[hold.sessionIdHash] = CLOSED
    self.totalHeld -= hold.maxAmount
    self._pay(hold.sessionIdHash, hold.payer, hold.maxAmount)
    log Reclaimed(sessionIdHash=hold.sessionIdHash, payer=hold.payer, amount=hold.maxAmount)


@external
@nonreentrant
def withdraw(receiver: address):
    """
    @notice Pay a receiver's credit out to that receiver; anyone may call it.
    """
    amount: uint256 = self.credit[receiver]
    assert amount > 0, "SessionEscrow: no credit"
    self.credit[receiver] = 0
    self.totalCredit -= amount
    moved: bool = extcall IERC20(TOKEN).transfer(receiver, amount, default_return_value=True)
    assert moved, "SessionEscrow: token refused"
    log Withdrawn(receiver=receiver, amount=amount)


@external
@nonreentrant
def returnStray(receiver: address, amount: uint256, reference: bytes32, meterSignature: Bytes[65]):
    """
    @notice Send money that came without a hold to a receiver that a meter names, once for each reference.
    @param  reference What the return is for, such as the nonce of the authorization that was sent past openExact.
    """
    assert not self.isStrayReturned[reference], "SessionEscrow: stray is returned"
    self._require_meter(
        keccak256(abi_encode(STRAY_TYPE_HASH, receiver, amount, reference)), meterSignature
    )
    bound: uint256 = self.totalHeld + self.totalCredit + amount
    assert staticcall IERC20(TOKEN).balanceOf(self) >= bound, "SessionEscrow: not that much is stray"
    self.isStrayReturned[reference] = True
    moved: bool = extcall IERC20(TOKEN).transfer(receiver, amount, default_return_value=True)
    assert moved, "SessionEscrow: token refused"
    log StrayReturned(receiver=receiver, reference=reference, amount=amount)


# Mandates.


@external
def revokeMandate(mandate: Mandate):
    """
    @notice Revoke a mandate of the caller, also one that was never used.
    """
    assert msg.sender == mandate.payer, "SessionEscrow: mandate of another payer"
    self._revoke(mandate)


@external
def revokeMandateFor(mandate: Mandate, payerSignature: Bytes[2048]):
    """
    @notice Revoke a mandate with its payer's signature of MandateRevocation; anyone may call it.
    """
    self._require_signed(
        mandate.payer, keccak256(abi_encode(REVOCATION_TYPE_HASH, self._mandate_hash(mandate))), payerSignature
    )
    self._revoke(mandate)


@internal
def _revoke(mandate: Mandate):
    mandate_hash: bytes32 = self._mandate_hash(mandate)
    self.isMandateRevoked[mandate_hash] = True
    log MandateRevoked(payer=mandate.payer, mandateHash=mandate_hash)


# Administration.


@view
@internal
def _require_owner():
    assert msg.sender == self.owner, "SessionEscrow: caller is not the owner"


@external
def proposeMeter(meter: address):
    """
    @notice Announce a meter. It can be allowed ADMIN_DELAY seconds later.
    """
    self._require_owner()
    assert meter != empty(address), "SessionEscrow: zero address"
    self.meterAllowedFrom[meter] = block.timestamp + ADMIN_DELAY
    log MeterProposed(meter=meter, allowedFrom=block.timestamp + ADMIN_DELAY)


@external
def allowMeter(meter: address):
    """
    @notice Allow a meter whose delay has passed.
    """
    self._require_owner()
    allowed_from: uint256 = self.meterAllowedFrom[meter]
    assert allowed_from != 0, "SessionEscrow: meter was not proposed"
    assert block.timestamp >= allowed_from, "SessionEscrow: meter's delay has not passed"
    self.meterAllowedFrom[meter] = 0
    self.isMeter[meter] = True
    log MeterSet(meter=meter, allowed=True)


@external
def removeMeter(meter: address):
    """
    @notice Forbid a meter, or withdraw its proposal, at once. All that it signed and that is not used is void.
    """
    self._require_owner()
    self.meterAllowedFrom[meter] = 0
    self.isMeter[meter] = False
    log MeterSet(meter=meter, allowed=False)


@external
def setPaused(paused: bool):
    """
    @notice Stop opens and extensions, or allow them again. Everything that pays out goes on.
    """
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
    assert msg.sender == self.pendingOwner, "SessionEscrow: caller is not the pending owner"
    assert block.timestamp >= self.ownershipAcceptableFrom, "SessionEscrow: transfer's delay has not passed"
    log OwnershipTransferred(previous=self.owner, owner=msg.sender)
    self.owner = msg.sender
    self.pendingOwner = empty(address)
