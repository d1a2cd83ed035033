"""Everybody sees what the owner of SessionEscrow does, in time to act: each act is an event."""

from sightline.chain.contracts.abi import address_topic, topic
from sightline.chain.contracts.messages import NOBODY
from tests.chain.contracts.escrow_world import ADMIN_DELAY_S, EscrowWorld, deploy_escrow
from tests.chain.contracts.ground import DirectGround, Done

METER_PROPOSED = topic("MeterProposed(address,uint256)")
METER_SET = topic("MeterSet(address,bool)")
PAUSED = topic("Paused(bool)")
TRANSFER_STARTED = topic("OwnershipTransferStarted(address,address,uint256)")
TRANSFERRED = topic("OwnershipTransferred(address,address)")


def by_owner(world: EscrowWorld, signature: str, *values: object) -> Done:
    return world.send("owner", world.escrow, signature, *values)


def word(value: int) -> bytes:
    return value.to_bytes(32)


def test_a_meter_is_announced_when_it_is_proposed_allowed_and_removed(world: EscrowWorld) -> None:
    meter = world.address("stranger")
    indexed = address_topic(meter)
    ready_s = world.ground.now_s + ADMIN_DELAY_S
    assert by_owner(world, "proposeMeter(address)", meter).of(METER_PROPOSED) == [
        ([METER_PROPOSED, indexed], word(ready_s))
    ]
    world.ground.wait(ADMIN_DELAY_S)
    assert by_owner(world, "allowMeter(address)", meter).of(METER_SET) == [([METER_SET, indexed], word(1))]
    assert by_owner(world, "removeMeter(address)", meter).of(METER_SET) == [([METER_SET, indexed], word(0))]


def test_the_owner_and_both_meters_are_announced_when_the_contract_is_deployed(world: EscrowWorld) -> None:
    ground = world.ground
    assert isinstance(ground, DirectGround)
    deploy_escrow(ground, world.token)
    meters = [address_topic(world.address(role)) for role in ("meter", "standby")]
    assert ground.creation.of(METER_SET) == [([METER_SET, meter], word(1)) for meter in meters]
    owners = [address_topic(NOBODY), address_topic(world.address("owner"))]
    assert ground.creation.of(TRANSFERRED) == [([TRANSFERRED, *owners], b"")]


def test_a_pause_is_announced(world: EscrowWorld) -> None:
    for paused in (True, False):
        assert by_owner(world, "setPaused(bool)", paused).of(PAUSED) == [([PAUSED], word(paused))]


def test_a_new_owner_is_announced_before_and_accepts_once(world: EscrowWorld) -> None:
    owner, heir = world.address("owner"), world.address("payee")
    parties = [address_topic(owner), address_topic(heir)]
    ready_s = world.ground.now_s + ADMIN_DELAY_S
    started = by_owner(world, "transferOwnership(address)", heir)
    assert started.of(TRANSFER_STARTED) == [([TRANSFER_STARTED, *parties], word(ready_s))]
    world.ground.wait(ADMIN_DELAY_S)
    accepted = world.send("payee", world.escrow, "acceptOwnership()")
    assert accepted.of(TRANSFERRED) == [([TRANSFERRED, *parties], b"")]
    assert (world.ask("owner()"), world.ask("pendingOwner()")) == (int(heir, 16), 0)
