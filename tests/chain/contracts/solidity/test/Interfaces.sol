// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

struct Terms { bytes32 sessionIdHash; address payer; address payee; uint256 maxAmount; uint256 ratePerSecond; uint256 feeBps; uint256 openBy; }
struct Hold { bytes32 sessionIdHash; address payer; address payee; uint256 maxAmount; uint256 ratePerSecond; uint256 feeBps; uint256 openedAt; }
struct Capture { Hold hold; uint256 cleanSeconds; bytes32 headHash; }
struct Mandate { address payer; address delegate; uint256 maxPerSession; uint256 maxPerDay; uint256 maxRatePerSecond; uint256 maxFeeBps; uint256 validUntil; bytes32 salt; }

/// What the tests call of SessionEscrow.vy.
interface Escrow {
    function openWithAuthorization(Terms calldata, address payee, bytes calldata payerSig, bytes calldata meterSig) external;
    function openExact(Terms calldata, address payee, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes calldata payerSig, bytes calldata meterSig) external;
    function openWithConsent(Terms calldata, address payee, bytes calldata consent, bytes calldata meterSig) external;
    function openWithMandate(Terms calldata, address payee, Mandate calldata, bytes calldata mandateSig, bytes calldata delegateSig, bytes calldata meterSig) external;
    function extendWithConsent(Hold calldata, uint256 extra, uint256 extendBy, bytes calldata consent, bytes calldata meterSig) external;
    function captureMany(Capture[] calldata, bytes calldata meterSig) external;
    function claim(Hold calldata, uint256 cleanSeconds, bytes32 headHash, bool isFinal, bytes calldata meterSig) external;
    function reclaim(Hold calldata) external;
    function withdraw(address receiver) external;
    function returnStray(address receiver, uint256 amount, bytes32 ref, bytes calldata meterSig) external;
    function revokeMandate(Mandate calldata) external;
    function revokeMandateFor(Mandate calldata, bytes calldata payerSig) external;
    function proposeMeter(address) external;
    function allowMeter(address) external;
    function removeMeter(address) external;
    function setPaused(bool) external;
    function stateOf(bytes32) external view returns (bytes32);
    function totalHeld() external view returns (uint256);
    function totalCredit() external view returns (uint256);
    function credit(address) external view returns (uint256);
    function openedOnDay(bytes32, uint256) external view returns (uint256);
}

interface Token {
    function mint(address, uint256) external returns (bool);
    function approve(address, uint256) external returns (bool);
    function transfer(address, uint256) external returns (bool);
    function balanceOf(address) external view returns (uint256);
    function setBlacklisted(address, bool) external;
}

/// The cheatcodes of forge that are used.
interface Vm {
    function addr(uint256 key) external pure returns (address);
    function sign(uint256 key, bytes32 digest) external pure returns (uint8 v, bytes32 r, bytes32 s);
    function prank(address sender) external;
    function warp(uint256 timestamp) external;
    function chainId(uint256 id) external;
    function etch(address target, bytes calldata code) external;
    function envBytes(string calldata name) external view returns (bytes memory);
}

Vm constant VM = Vm(0x7109709ECfa91a80626fF3989D68f67F5b1DD12D);
bytes32 constant CLOSED = bytes32(uint256(1));
uint256 constant CHAIN = 84_532_001;
uint256 constant SLACK = 30;
uint256 constant MAX_SECONDS = 14_400;
uint256 constant INTERIM_DELAY = 3_600;
uint256 constant RECLAIM_DELAY = 172_800;
uint256 constant ADMIN_DELAY = 172_800;
uint256 constant SESSION_CAP = 100_000_000;
uint256 constant FUNDS = 10 ** 12;
