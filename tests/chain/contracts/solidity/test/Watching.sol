// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import "./Interfaces.sol";

/// Names the session that a call is about to close, and notes whether money moved before the contract said so.
contract Watch {
    Escrow private immutable escrow;
    bytes32 private closing;
    bool public isEarly;

    constructor(Escrow escrow_) {
        escrow = escrow_;
    }

    function expect(bytes32 session) external {
        closing = session;
    }

    function moved() external {
        if (closing != 0 && escrow.stateOf(closing) != CLOSED) isEarly = true;
    }
}

/// The code of a token, which tells a watch of each transfer by the contract.
contract WatchedToken {
    address private immutable code;
    Watch private immutable watch;
    address private immutable escrow;

    constructor(address code_, Watch watch_, address escrow_) {
        code = code_;
        watch = watch_;
        escrow = escrow_;
    }

    fallback() external {
        if (msg.sender == escrow && msg.sig == Token.transfer.selector) watch.moved();
        address target = code;
        assembly {
            calldatacopy(0, 0, calldatasize())
            let done := delegatecall(gas(), target, 0, calldatasize(), 0, 0)
            returndatacopy(0, 0, returndatasize())
            if iszero(done) { revert(0, returndatasize()) }
            return(0, returndatasize())
        }
    }
}
