// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import "./Interfaces.sol";

/// Signs what payers, delegates and meters sign, for the contract and the token.
contract Messages {
    bytes32 private constant DOMAIN = keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    bytes32 private constant TERMS = keccak256("SessionTerms(bytes32 sessionIdHash,address payer,address payee,uint256 maxAmount,uint256 ratePerSecond,uint256 feeBps,uint256 openBy)");
    bytes32 private constant OPENING = keccak256("Opening(bytes32 termsHash,address payee)");
    bytes32 private constant STATEMENT = keccak256("MeterStatement(bytes32 holdHash,uint256 cleanSeconds,bytes32 headHash,bool isFinal)");
    bytes32 private constant BATCH = keccak256("CaptureBatch(bytes32 capturesHash)");
    bytes32 private constant EXTENSION = keccak256("Extension(bytes32 holdHash,uint256 extraAmount,uint256 extendBy)");
    bytes32 private constant MANDATE = keccak256("Mandate(address payer,address delegate,uint256 maxPerSession,uint256 maxPerDay,uint256 maxRatePerSecond,uint256 maxFeeBps,uint256 validUntil,bytes32 salt)");
    bytes32 private constant REVOCATION = keccak256("MandateRevocation(bytes32 mandateHash)");
    bytes32 private constant STRAY = keccak256("StrayReturn(address receiver,uint256 amount,bytes32 reference)");
    bytes32 private constant TRANSFER = keccak256("TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)");
    bytes32 private constant RECEIVE = keccak256("ReceiveWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)");

    Escrow public immutable escrow;
    Token public immutable token;

    constructor(Escrow escrow_, Token token_) {
        escrow = escrow_;
        token = token_;
    }

    function key(string memory name) public pure returns (uint256) {
        return uint256(keccak256(bytes(name))) >> 1;
    }

    function party(string memory name) public pure returns (address) {
        return VM.addr(key(name));
    }

    function holdHash(Hold memory hold) public pure returns (bytes32) {
        return keccak256(abi.encode(hold));
    }

    function termsHash(Terms memory terms) internal pure returns (bytes32) {
        return keccak256(abi.encode(TERMS, terms));
    }

    function mandateHash(Mandate memory mandate) public pure returns (bytes32) {
        return keccak256(abi.encode(MANDATE, mandate));
    }

    function _sign(string memory who, bytes32 structHash, string memory name, address verifier, uint256 chain) private pure returns (bytes memory) {
        bytes32 domain = keccak256(abi.encode(DOMAIN, keccak256(bytes(name)), keccak256("1"), chain, verifier));
        (uint8 v, bytes32 r, bytes32 s) = VM.sign(key(who), keccak256(abi.encodePacked(hex"1901", domain, structHash)));
        return abi.encodePacked(r, s, v);
    }

    function sign(string memory who, bytes32 structHash) internal view returns (bytes memory) {
        return _sign(who, structHash, "SessionEscrow", address(escrow), block.chainid);
    }

    function signTerms(string memory who, Terms memory terms) internal view returns (bytes memory) {
        return sign(who, termsHash(terms));
    }

    function signOpening(string memory who, Terms memory terms, address payee) internal view returns (bytes memory) {
        return sign(who, keccak256(abi.encode(OPENING, termsHash(terms), payee)));
    }

    function signStatement(string memory who, Hold memory hold, uint256 cleanSeconds, bytes32 head, bool isFinal) internal view returns (bytes memory) {
        return sign(who, keccak256(abi.encode(STATEMENT, holdHash(hold), cleanSeconds, head, isFinal)));
    }

    function signBatch(string memory who, Capture[] memory captures) internal view returns (bytes memory) {
        return sign(who, keccak256(abi.encode(BATCH, keccak256(abi.encode(captures)))));
    }

    function signExtension(string memory who, Hold memory hold, uint256 extra, uint256 by) internal view returns (bytes memory) {
        return sign(who, keccak256(abi.encode(EXTENSION, holdHash(hold), extra, by)));
    }

    function signMandate(string memory who, Mandate memory mandate) internal view returns (bytes memory) {
        return sign(who, mandateHash(mandate));
    }

    function signRevocation(string memory who, Mandate memory mandate) internal view returns (bytes memory) {
        return sign(who, keccak256(abi.encode(REVOCATION, mandateHash(mandate))));
    }

    function signStray(string memory who, address receiver, uint256 amount, bytes32 ref) internal view returns (bytes memory) {
        return sign(who, keccak256(abi.encode(STRAY, receiver, amount, ref)));
    }

    function signReceive(string memory who, Terms memory terms) internal view returns (bytes memory) {
        bytes32 message = keccak256(abi.encode(RECEIVE, terms.payer, address(escrow), terms.maxAmount, 0, terms.openBy, termsHash(terms)));
        return _sign(who, message, "Sightline Test USD Coin", address(token), block.chainid);
    }

    function signTransfer(string memory who, Terms memory terms, bytes32 nonce) internal view returns (bytes memory) {
        bytes32 message = keccak256(abi.encode(TRANSFER, terms.payer, address(escrow), terms.maxAmount, 0, terms.openBy, nonce));
        return _sign(who, message, "Sightline Test USD Coin", address(token), block.chainid);
    }
}
