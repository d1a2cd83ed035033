// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import "./Everybody.sol";

/// The invariants I1 to I11 of SessionEscrow.vy, against the creation code in ESCROW_CODE; each is a campaign of its own.
/// TOKEN_CODE is the creation code of TestUSDC.vy.
contract SessionEscrowTest {
    Everybody private all;
    Escrow private escrow;
    Token private token;

    function setUp() external {
        VM.chainId(CHAIN);
        VM.warp(1_900_000_000);
        Messages names = new Messages(Escrow(address(0)), Token(address(0)));
        address owner = names.party("owner");
        token = Token(_create(bytes.concat(VM.envBytes("TOKEN_CODE"), abi.encode(owner))));
        escrow = Escrow(_create(bytes.concat(VM.envBytes("ESCROW_CODE"), abi.encode(
            token, owner, names.party("meter"), names.party("standby"), names.party("feeReceiver"),
            3_000, SESSION_CAP, 1_000_000, ADMIN_DELAY
        ))));
        Watch watch = new Watch(escrow);
        _watch(watch);
        all = new Everybody(escrow, token, watch);
        for (uint256 i = 0; i < 2; i++) {
            address payer = names.party(all.names(i));
            VM.prank(owner);
            token.mint(payer, FUNDS);
            VM.prank(payer);
            token.approve(address(escrow), type(uint256).max);
        }
    }

    function _create(bytes memory code) private returns (address made) {
        assembly { made := create(0, add(code, 32), mload(code)) }
        require(made != address(0), "a creation reverted");
    }

    function _watch(Watch watch) private {
        address copy = address(uint160(uint256(keccak256("code of the token"))));
        VM.etch(copy, address(token).code);
        VM.etch(address(token), address(new WatchedToken(copy, watch, address(escrow))).code);
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(all);
    }

    function _nothingBroke(uint256 number) private view {
        string memory what = all.broken(number);
        require(bytes(what).length == 0, what);
    }

    function invariant_I1_balance_is_held_and_credit_and_stray() external view {
        _nothingBroke(1);
        require(escrow.totalHeld() == all.held(), "totalHeld is not the sum of the open holds");
        require(escrow.totalCredit() == all.owed(), "totalCredit is not the sum of the credits");
        require(token.balanceOf(address(escrow)) == all.held() + all.owed() + all.stray(), "balance is not held + credit + stray");
    }

    function invariant_I2_a_session_only_moves_forward() external view {
        _nothingBroke(2);
        require(!all.watch().isEarly(), "money moved before the session was closed");
        uint256 count = all.opened();
        uint256 openCount = all.openCount();
        uint256 closed = 0;
        for (uint256 i = 0; i < count; i++) {
            if (escrow.stateOf(all.holdAt(i).sessionIdHash) == CLOSED) closed++;
        }
        require(closed == count - openCount, "a closed session is not CLOSED");
        for (uint256 i = 0; i < openCount; i++) {
            Hold memory hold = all.holdAt(all.open(i));
            require(escrow.stateOf(hold.sessionIdHash) == all.holdHash(hold), "an open session has not its hold's hash");
        }
    }

    function invariant_I3_parties_get_exactly_what_was_held() external view {
        _nothingBroke(3);
        for (uint256 i = 0; i < 5; i++) {
            address who = all.party(all.names(i));
            require(escrow.credit(who) == all.credit(who), "a credit is not what its receiver could not take");
            int256 has = int256(token.balanceOf(who) + escrow.credit(who));
            require(has == (i < 2 ? int256(FUNDS) : int256(0)) + all.worth(who), "somebody has more or less than its part");
        }
    }

    function invariant_I4_a_charge_is_within_time_and_amount() external view {
        _nothingBroke(4);
    }

    function invariant_I5_no_money_leaves_a_payer_without_its_signature() external view {
        _nothingBroke(5);
    }

    /// Whatever happened: a stranger returns the open holds once their time has come.
    function invariant_I6_everything_returns_in_the_end() external {
        _nothingBroke(6);
        uint256 openCount = all.openCount();
        for (uint256 i = openCount > 5 ? openCount - 5 : 0; i < openCount; i++) {
            Hold memory hold = all.holdAt(all.open(i));
            uint256 from = hold.openedAt + hold.maxAmount / hold.ratePerSecond + RECLAIM_DELAY;
            VM.warp(from > all.clock() ? from : all.clock());
            uint256 before = token.balanceOf(hold.payer) + escrow.credit(hold.payer);
            escrow.reclaim(hold);
            require(token.balanceOf(hold.payer) + escrow.credit(hold.payer) == before + hold.maxAmount, "a payer got less");
        }
    }

    function invariant_I7_a_pause_stops_opens_and_extensions_only() external view {
        _nothingBroke(7);
    }

    function invariant_I8_who_sends_changes_nothing() external view {
        _nothingBroke(8);
        require(token.balanceOf(all.party("gas")) == 0, "a sender has money");
    }

    function invariant_I9_a_mandates_day_is_bounded() external view {
        _nothingBroke(9);
        for (uint256 i = 0; i < 2; i++) {
            Mandate memory mandate = all.mandateOf(all.names(i));
            bytes32 id = all.mandateHash(mandate);
            uint256 opened = escrow.openedOnDay(id, all.clock() / 1 days);
            require(opened == all.openedOnDay(id, all.clock() / 1 days), "a mandate's day is not counted");
            require(opened <= mandate.maxPerDay, "a mandate's day is over its limit");
        }
    }

    function invariant_I10_deadlines_are_kept() external view {
        _nothingBroke(10);
    }

    function invariant_I11_a_signature_does_what_it_names() external view {
        _nothingBroke(11);
    }
}
