// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import "./Messages.sol";
import "./Watching.sol";

/// Calls the contract as everybody may, and a model of it. A call that the contract answers otherwise than the model is
/// recorded under the number of the invariant that it breaks; the head of SessionEscrow.vy has the list.
contract Everybody is Messages {
    uint256 private constant NONE = 0;

    Watch public immutable watch;
    mapping(uint256 => string) public broken;

    uint256 public clock = 1_900_000_000;
    Hold[] internal holds; // every hold that was opened, as it is now
    uint256[] public open; // indexes of the open ones
    uint256 public held;
    uint256 public owed;
    uint256 public stray;
    bool public isPaused;
    bool public isMeterRemoved;
    mapping(address => int256) public worth;
    mapping(address => uint256) public credit;
    mapping(address => bool) public isBlocked;
    mapping(bytes32 => mapping(uint256 => uint256)) public openedOnDay;
    mapping(address => bool) internal isRevoked;
    mapping(uint256 => bool) internal isReturned;
    uint256 private sessions;

    string[5] public names = ["alice", "bob", "carol", "dave", "feeReceiver"];
    string[6] private senders = ["alice", "carol", "feeReceiver", "gas", "owner", "stranger"];

    constructor(Escrow escrow_, Token token_, Watch watch_) Messages(escrow_, token_) {
        watch = watch_;
    }

    modifier now_() {
        VM.warp(clock);
        VM.chainId(CHAIN);
        _;
    }

    // Helpers.

    function _try(string memory sender, bytes memory data) private returns (bool done) {
        VM.prank(party(sender));
        (done,) = address(escrow).call(data);
    }

    /// `reason` is the invariant that forbids the call, or NONE; `owing` the one that demands that it succeeds.
    function _compare(bool done, uint256 reason, uint256 owing, string memory what) private {
        if (done && reason != NONE) broken[reason] = string.concat(what, ": accepted, and had to be refused");
        if (!done && reason == NONE) broken[owing] = string.concat(what, ": refused, and had to be accepted");
    }

    function _sender(uint256 seed) private view returns (string memory) {
        return senders[seed % senders.length];
    }

    function _payer(uint256 seed) private view returns (string memory) {
        return names[seed % 2];
    }

    function _payee(uint256 seed) private view returns (address) {
        return party(names[seed % 3 == 0 ? 0 : 1 + seed % 3]); // alice, carol, dave
    }

    function _paid(address receiver, uint256 amount) private {
        worth[receiver] += int256(amount);
        if (isBlocked[receiver]) {
            credit[receiver] += amount;
            owed += amount;
        }
    }

    function _ended(uint256 place, uint256 charged) private returns (uint256 fee) {
        Hold memory hold = holds[open[place]];
        uint256 total = charged * hold.ratePerSecond;
        fee = total * hold.feeBps / 10_000;
        _paid(hold.payee, total - fee);
        _paid(hold.payer, hold.maxAmount - total);
        held -= hold.maxAmount;
        open[place] = open[open.length - 1];
        open.pop();
    }

    function _seconds(Hold memory hold, uint256 seed) private view returns (uint256) {
        uint256 passed = clock - hold.openedAt;
        uint256 most = hold.maxAmount / hold.ratePerSecond;
        uint256 kind = seed % 8;
        if (kind == 0) return 0;
        if (kind == 1) return passed;
        if (kind == 2) return passed + SLACK;
        if (kind == 3) return passed + SLACK + 1;
        if (kind == 4) return most;
        if (kind == 5) return most + 1;
        if (kind == 6) return type(uint256).max;
        return seed / 8 % (most + 1);
    }

    function _fits(Hold memory hold, uint256 charged) private view returns (uint256) {
        bool isWithin = charged <= clock - hold.openedAt + SLACK && charged <= hold.maxAmount / hold.ratePerSecond;
        return isWithin ? NONE : 4;
    }

    function _terms(uint256 seed) private returns (Terms memory) {
        uint256 rate = 1 + (seed >> 16) % 5_000;
        uint256 amount = rate * (1 + (seed >> 48) % 900) + (seed >> 64) % rate;
        sessions += 1;
        return Terms(
            keccak256(abi.encode(sessions)), party(_payer(seed)), _payee(seed >> 8), amount, rate, (seed >> 80) % 3_001, clock + 300
        );
    }

    function mandateOf(string memory payer) public pure returns (Mandate memory) {
        return Mandate(party(payer), address(0), 3_000_000, 4_000_000, 5_000, 3_000, 2_100_000_000, "salt");
    }

    function _funds(Terms memory terms, string memory signer) private view returns (uint256) {
        if (isMeterRemoved) return 11;
        if (isPaused) return 7;
        if (party(signer) != terms.payer) return 5;
        bool isShort = isBlocked[terms.payer] || token.balanceOf(terms.payer) < terms.maxAmount;
        return isShort ? 1 : NONE;
    }

    // Opens.

    /// By whom it is sent makes no difference (I8); only the payer's signature does (I5).
    function openHold(uint256 seed, uint8 way, uint8 signing, uint8 sending) external now_ {
        Terms memory terms = _terms(seed);
        string memory signer = signing % 4 == 0 ? _payer(seed ^ 1) : _payer(seed);
        uint256 reason = _funds(terms, signer);
        bytes memory data;
        bytes memory opening = signOpening("meter", terms, terms.payee);
        if (way % 4 == 0) {
            data = abi.encodeCall(Escrow.openWithAuthorization, (terms, terms.payee, signReceive(signer, terms), opening));
        } else if (way % 4 == 1) {
            bytes memory paid = signTransfer(signer, terms, terms.sessionIdHash);
            data = abi.encodeCall(Escrow.openExact, (terms, terms.payee, 0, terms.openBy, terms.sessionIdHash, paid, opening));
        } else if (way % 4 == 2) {
            data = abi.encodeCall(Escrow.openWithConsent, (terms, terms.payee, signTerms(signer, terms), opening));
        } else {
            (data, reason) = _mandated(terms, signer, _payer(seed), reason, opening);
        }
        bool done = _try(_sender(sending), data);
        _compare(done, reason, 8, "open");
        if (done) _opened(terms, way % 4 == 3, _payer(seed));
    }

    function _mandated(Terms memory terms, string memory signer, string memory payer, uint256 reason, bytes memory opening)
        private view returns (bytes memory, uint256)
    {
        Mandate memory mandate = mandateOf(payer);
        uint256 today = openedOnDay[mandateHash(mandate)][clock / 1 days] + terms.maxAmount;
        if (reason == NONE && isRevoked[mandate.payer]) reason = 5;
        if (reason == NONE && (terms.maxAmount > mandate.maxPerSession || today > mandate.maxPerDay)) reason = 9;
        return (
            abi.encodeCall(Escrow.openWithMandate, (terms, terms.payee, mandate, signMandate(signer, mandate), "", opening)), reason
        );
    }

    function _opened(Terms memory terms, bool isMandated, string memory payer) private {
        if (isMandated) openedOnDay[mandateHash(mandateOf(payer))][clock / 1 days] += terms.maxAmount;
        open.push(holds.length);
        holds.push(Hold(terms.sessionIdHash, terms.payer, terms.payee, terms.maxAmount, terms.ratePerSecond, terms.feeBps, clock));
        held += terms.maxAmount;
        worth[terms.payer] -= int256(terms.maxAmount);
    }

    /// A session that is known, open or closed, is never opened again.
    function openAgain(uint256 which, uint256 seed) external now_ {
        if (holds.length == 0) return;
        Terms memory terms = _terms(seed);
        terms.sessionIdHash = holds[which % holds.length].sessionIdHash;
        bytes memory consent = signTerms(_payer(seed), terms);
        bytes memory opening = signOpening("meter", terms, terms.payee);
        _compare(_try("gas", abi.encodeCall(Escrow.openWithConsent, (terms, terms.payee, consent, opening))), 2, 2, "open again");
    }

    /// A meter does not name another payee than the payer's terms.
    function openForAnotherPayee(uint256 seed) external now_ {
        Terms memory terms = _terms(seed);
        address thief = party("stranger");
        bytes memory consent = signTerms(_payer(seed), terms);
        bytes memory opening = signOpening("meter", terms, thief);
        _compare(_try("gas", abi.encodeCall(Escrow.openWithConsent, (terms, thief, consent, opening))), 11, 11, "open for another payee");
    }

    /// The chain forks: what was signed for this chain is worth nothing on the other.
    function useOnAnotherChain(uint256 which, uint256 seed, bool isOpening) external now_ {
        Terms memory terms = _terms(seed);
        bytes memory data = abi.encodeCall(
            Escrow.openWithConsent, (terms, terms.payee, signTerms(_payer(seed), terms), signOpening("meter", terms, terms.payee))
        );
        if (!isOpening) {
            if (open.length == 0) return;
            Hold memory hold = holds[open[which % open.length]];
            data = abi.encodeCall(Escrow.claim, (hold, 0, "head", true, signStatement("meter", hold, 0, "head", true)));
        }
        VM.chainId(CHAIN + 1);
        bool done = _try("gas", data);
        VM.chainId(CHAIN);
        _compare(done, 11, 11, "signature of another chain");
    }

    function extendHold(uint256 which, uint256 extra, uint8 signing, uint8 sending) external now_ {
        if (open.length == 0) return;
        Hold memory hold = holds[open[which % open.length]];
        extra = 1 + extra % 1_000_000;
        string memory payer = hold.payer == party("alice") ? "alice" : "bob";
        string memory signer = signing % 4 == 0 ? "stranger" : payer;
        uint256 reason = _reasonAgainst(hold, extra);
        if (reason == NONE && signing % 4 == 0) reason = 5;
        bool done = _try(_sender(sending), abi.encodeCall(Escrow.extendWithConsent, (
            hold, extra, clock + 60, signExtension(signer, hold, extra, clock + 60), signExtension("meter", hold, extra, clock + 60)
        )));
        _compare(done, reason, 8, "extend");
        if (!done) return;
        holds[open[which % open.length]].maxAmount += extra;
        held += extra;
        worth[hold.payer] -= int256(extra);
    }

    function _reasonAgainst(Hold memory hold, uint256 extra) private view returns (uint256) {
        if (isMeterRemoved) return 11;
        if (isPaused) return 7;
        if (isBlocked[hold.payer] || token.balanceOf(hold.payer) < extra) return 1;
        uint256 grown = hold.maxAmount + extra;
        bool isOver = clock >= hold.openedAt + hold.maxAmount / hold.ratePerSecond;
        return isOver || grown > SESSION_CAP || grown / hold.ratePerSecond > MAX_SECONDS ? 10 : NONE;
    }

    // Ends.

    /// One or two charges in a batch, sent by a meter or signed by it: each is made or skipped on its own.
    function captureSome(uint256 which, uint256 seed, bool isTwo, bool isMeters, uint8 sending) external now_ {
        if (open.length == 0) return;
        uint256 count = isTwo && open.length > 1 ? 2 : 1;
        Capture[] memory items = new Capture[](count);
        for (uint256 i = 0; i < count; i++) {
            Hold memory hold = holds[open[(which % open.length + i) % open.length]];
            items[i] = Capture(hold, _seconds(hold, seed >> (i * 64)), "head");
        }
        if (count == 1) watch.expect(items[0].hold.sessionIdHash);
        string memory signer = isMeterRemoved ? "standby" : "meter";
        bytes memory signature = isMeters ? bytes("") : signBatch(signer, items);
        bool done = _try(isMeters ? signer : _sender(sending), abi.encodeCall(Escrow.captureMany, (items, signature)));
        watch.expect(0);
        _compare(done, NONE, 7, "captureMany");
        if (done) _captured(items);
    }

    function _captured(Capture[] memory items) private {
        uint256 fees = 0;
        for (uint256 i = 0; i < items.length; i++) {
            bool isClosed = escrow.stateOf(items[i].hold.sessionIdHash) != holdHash(items[i].hold);
            uint256 reason = _fits(items[i].hold, items[i].cleanSeconds);
            _compare(isClosed, reason, 8, "an item of captureMany");
            if (isClosed && reason == NONE) fees += _ended(_placeOf(items[i].hold.sessionIdHash), items[i].cleanSeconds);
        }
        _paid(party("feeReceiver"), fees);
    }

    function _placeOf(bytes32 session) private view returns (uint256 place) {
        while (holds[open[place]].sessionIdHash != session) place++;
    }

    /// A meter that is trusted can charge only the hold that was opened, whatever it says of it.
    function captureForged(uint256 which, uint8 member, uint256 value) external now_ {
        if (open.length == 0 || isMeterRemoved) return;
        Hold memory hold = holds[open[which % open.length]];
        Hold memory forged = holds[open[which % open.length]];
        if (member % 6 == 0) forged.payer = party("stranger");
        if (member % 6 == 1) forged.payee = party("stranger");
        if (member % 6 == 2) forged.maxAmount += 1 + value % 1_000;
        if (member % 6 == 3) forged.ratePerSecond += 1 + value % 1_000;
        if (member % 6 == 4) forged.feeBps += 1 + value % 1_000;
        if (member % 6 == 5) forged.openedAt -= 1 + value % 1_000;
        Capture[] memory items = new Capture[](1);
        items[0] = Capture(forged, 0, "head");
        bool done = _try("meter", abi.encodeCall(Escrow.captureMany, (items, "")));
        _compare(done, NONE, 7, "captureMany of a forged hold");
        if (escrow.stateOf(hold.sessionIdHash) != holdHash(hold)) broken[11] = "a forged hold was charged";
    }

    function claimOne(uint256 which, uint256 seed, bool isFinal, uint8 signing, uint8 sending) external {
        if (open.length == 0) return;
        if (!isFinal) waitForDeadline(which, 1, sending % 2 == 0);
        _claim(which % open.length, seed, isFinal, signing, sending);
    }

    function _claim(uint256 place, uint256 seed, bool isFinal, uint8 signing, uint8 sending) private now_ {
        Hold memory hold = holds[open[place]];
        uint256 charged = _seconds(hold, seed);
        string memory signer = signing % 5 == 0 ? "stranger" : signing % 2 == 0 ? "standby" : "meter";
        uint256 reason = _fits(hold, charged);
        if (reason == NONE && !isFinal && clock < hold.openedAt + hold.maxAmount / hold.ratePerSecond + INTERIM_DELAY) reason = 10;
        if (reason == NONE && (signing % 5 == 0 || (signing % 2 == 1 && isMeterRemoved))) reason = 11;
        bytes memory signature = signStatement(signer, hold, charged, "head", isFinal);
        watch.expect(hold.sessionIdHash);
        bool done = _try(_sender(sending), abi.encodeCall(Escrow.claim, (hold, charged, "head", isFinal, signature)));
        watch.expect(0);
        _compare(done, reason, isPaused ? 7 : 11, "claim");
        if (done && reason == NONE) _paid(party("feeReceiver"), _ended(place, charged));
    }

    /// A statement charges its own hold with its own numbers.
    function claimByAnotherStatement(uint256 which, uint256 other, uint8 member) external now_ {
        if (open.length < 2 || which % open.length == other % open.length) return;
        Hold memory hold = holds[open[which % open.length]];
        Hold memory signed = member % 3 == 0 ? holds[open[other % open.length]] : hold;
        bytes memory signature = signStatement("standby", signed, member % 3 == 1 ? 0 : 1, member % 3 == 2 ? bytes32("other") : bytes32("head"), true);
        bool done = _try("gas", abi.encodeCall(Escrow.claim, (hold, 1, "head", true, signature)));
        _compare(done, 11, 11, "claim by another statement");
    }

    function reclaimOne(uint256 which, uint8 sending) external now_ {
        if (open.length == 0) return;
        Hold memory hold = holds[open[which % open.length]];
        bool isEarly = clock < hold.openedAt + hold.maxAmount / hold.ratePerSecond + RECLAIM_DELAY;
        watch.expect(hold.sessionIdHash);
        bool done = _try(_sender(sending), abi.encodeCall(Escrow.reclaim, (hold)));
        watch.expect(0);
        _compare(done, isEarly ? 10 : NONE, 6, "reclaim");
        if (done && !isEarly) _ended(which % open.length, 0);
    }

    function withdrawCredit(uint8 who, uint8 sending) external now_ {
        address receiver = party(names[who % names.length]);
        bool isPayable = credit[receiver] > 0 && !isBlocked[receiver];
        bool done = _try(_sender(sending), abi.encodeCall(Escrow.withdraw, (receiver)));
        _compare(done, isPayable ? NONE : 1, 7, "withdraw");
        if (!done || !isPayable) return;
        owed -= credit[receiver];
        credit[receiver] = 0;
    }

    function returnStray(uint256 amount, uint8 number) external now_ {
        if (isMeterRemoved) return;
        amount %= 1_500;
        address receiver = party("stranger");
        bytes32 ref = bytes32(uint256(number % 8));
        uint256 reason = amount > stray ? 1 : isReturned[number % 8] ? 2 : NONE;
        bytes memory signature = signStray("meter", receiver, amount, ref);
        bool done = _try("gas", abi.encodeCall(Escrow.returnStray, (receiver, amount, ref, signature)));
        _compare(done, reason, 8, "returnStray");
        if (!done || reason != NONE) return;
        isReturned[number % 8] = true;
        stray -= amount;
    }

    // What others do.

    function passTime(uint256 seed) external {
        clock += seed % 8 == 0 ? 1 + seed % 86_400 : 1 + seed % 60;
    }

    /// To a deadline of a hold, or to the second before it.
    function waitForDeadline(uint256 which, uint8 kind, bool isBefore) public {
        if (open.length == 0) return;
        Hold memory hold = holds[open[which % open.length]];
        uint256 until = hold.openedAt + hold.maxAmount / hold.ratePerSecond;
        if (kind % 3 == 1) until += INTERIM_DELAY;
        if (kind % 3 == 2) until += RECLAIM_DELAY;
        if (isBefore) until -= 1;
        if (until > clock) clock = until;
    }

    function blockParty(uint8 who, bool isBad) external now_ {
        address account = party(names[who % names.length]);
        VM.prank(party("owner"));
        token.setBlacklisted(account, isBad);
        isBlocked[account] = isBad;
    }

    function pause(uint8 seed) external now_ {
        isPaused = seed % 4 == 0;
        VM.prank(party("owner"));
        escrow.setPaused(isPaused);
    }

    /// Remove the first meter, or bring it back after its delay. The second one stays.
    function changeMeter(uint8 seed) external now_ {
        isMeterRemoved = seed % 8 == 0 && !isMeterRemoved;
        address meter = party("meter");
        if (isMeterRemoved) {
            VM.prank(party("owner"));
            escrow.removeMeter(meter);
            return;
        }
        VM.prank(party("owner"));
        escrow.proposeMeter(meter);
        clock += ADMIN_DELAY;
        VM.warp(clock);
        VM.prank(party("owner"));
        escrow.allowMeter(meter);
    }

    function revokeMandate(uint8 seed, bool isSigned, bool isPayers) external now_ {
        if (seed % 8 > 1) return; // each has one mandate, which is used for a while
        string memory payer = _payer(seed);
        string memory who = isPayers ? payer : "stranger";
        Mandate memory mandate = mandateOf(payer);
        bytes memory data = isSigned
            ? abi.encodeCall(Escrow.revokeMandateFor, (mandate, signRevocation(who, mandate)))
            : abi.encodeCall(Escrow.revokeMandate, (mandate));
        _compare(_try(isSigned ? "gas" : who, data), isPayers ? NONE : 5, 5, "revoke a mandate");
        if (isPayers) isRevoked[party(payer)] = true;
    }

    function sendStray(uint256 amount) external now_ {
        amount %= 1_000;
        VM.prank(party("owner"));
        token.mint(address(escrow), amount);
        stray += amount;
    }

    // For the invariants.

    function opened() external view returns (uint256) {
        return holds.length;
    }

    function openCount() external view returns (uint256) {
        return open.length;
    }

    function holdAt(uint256 index) external view returns (Hold memory) {
        return holds[index];
    }
}
