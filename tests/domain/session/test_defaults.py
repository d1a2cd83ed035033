"""The values that a record has when nothing else was said."""

import pytest
from msgspec import NODEFAULT
from msgspec.structs import fields

from sightline.domain.geofence import DeviceKind, FenceLimits, Fix, Track
from sightline.domain.metering import MeterLimits
from sightline.domain.operator.machine import AcceptPolicy, ClaimByAccept, Release, Restore
from sightline.domain.operator.model import Availability, Claim, Workspace
from sightline.domain.session.messages import Assign, ConsumerActive, Event, FixReported, ReleaseOperator, Step
from sightline.domain.session.model import (
    Assigned,
    Closed,
    Ended,
    Live,
    LocationState,
    Requested,
    Session,
    SessionLimits,
    Terms,
)
from sightline.domain.session.status import MeterStatus, SessionStatus

EXPECTED = {
    Terms: {"consumer_lease_s": None, "consent": None, "minimum_s": 0, "requires_coverage": False},
    Requested: {"reopened_at_ms": None, "deadline_ms": None, "unstarted_by": ()},
    Assigned: {"is_dispatched": False, "wait_left_ms": None, "unstarted_by": (), "funding_at_ms": None},
    LocationState: {
        "track": Track(), "is_inside": None, "outside_in_row": 0, "coarse_in_row": 0, "last_fix": None,
        "last_sequence": -1,
    },
    Live: {"pause_reason": None, "consumer_seen_ms": 0, "hold_tx_hash": None, "messages": ()},
    Ended: {"settlement_tx_hash": None, "hold_tx_hash": None, "messages": ()},
    Closed: {"is_dispatched": False},
    Session: {
        "version": 0, "head_hash": "", "events": 0, "ended_head_hash": None, "extensions": (), "extending": None,
        "ended_by": None, "messages_shown": 0, "delivery": None,
    },
    SessionLimits: {
        "start_timeout_ms": 120_000, "drone_start_timeout_ms": 300_000, "funds_reserve_s": 30,
        "funding_timeout_ms": 60_000, "meter": MeterLimits(),
        "fence": FenceLimits(),
    },
    MeterLimits: {
        "silence_ms": 10_000, "grace_ms": 2_000, "pause_max_ms": 60_000, "paused_total_max_ms": 180_000,
    },
    FenceLimits: {
        "accuracy_slack_m": 50.0, "exit_margin_m": 20.0, "exit_margin_ratio": 0.1, "accuracy_max_m": 100.0,
        "outside_fixes": 2, "coarse_fixes": 5, "mounted_radius_m": 100.0, "speed_max_mps": 70.0,
        "drone_speed_max_mps": 40.0, "mounted_speed_max_mps": 3.0, "consistent_fixes": 3,
    },
    Fix: {"is_proof": True},
    Track: {"adopted": None, "suspects": ()},
    Workspace: {
        "availability": Availability.OFFLINE, "rest": Availability.OFFLINE, "coverage_lat": None,
        "coverage_lng": None, "coverage_radius_m": None, "device_kind": DeviceKind.OTHER, "idle_since_ms": 0,
        "unstarted_for": (), "claims": {}, "last_sequence": -1, "sequence_base": 0, "last_seen_at_ms": None,
        "deleted_at_ms": None, "version": 0, "last_place": None,
    },
    Claim: {"is_live": False, "is_dispatched": False},
    AcceptPolicy: {"assignments_max": 3, "is_verified": False, "seen_within_ms": 60_000},
    ClaimByAccept: {"lat": 0.0, "lng": 0.0, "policy": AcceptPolicy()},
    Restore: {"is_dispatched": False},
    Release: {"start_timed_out": False, "funded_consumer": None},
    Assign: {"is_dispatched": False},
    ConsumerActive: {"workspace_id": None, "picture_at_ms": None},
    FixReported: {"is_fresh": True, "previous": None, "previous_at_ms": None},
    Event: {"facts": ()},
    ReleaseOperator: {"is_withdrawn": False},
    Step: {"events": (), "effects": (), "has_evidence": False},
    MeterStatus: {
        "ended_head_hash": None, "started_at_ms": None, "ended_at_ms": None, "state": None, "clean_seconds": 0,
        "charged": 0, "windows": (),
    },
    SessionStatus: {
        "assigned_at_ms": None, "started_at_ms": None, "ended_at_ms": None, "end_reason": None, "meter_state": None,
        "pause_reason": None, "clean_seconds": 0, "charged": 0, "settlement_tx_hash": None, "video_ref": None,
        "whep_url": None, "whip_url": None, "hold_tx_hash": None, "operator_distance_m": None,
        "is_place_covered": None, "extension_tx_hash": None, "ended_by": None, "messages": (), "messages_shown": 0,
        "delivery": None,
    },
}  # fmt: skip


@pytest.mark.parametrize("record", EXPECTED, ids=lambda record: record.__name__)
def test_the_defaults_of_each_record(record):
    found = {
        each.name: each.default if each.default is not NODEFAULT else each.default_factory()
        for each in fields(record)
        if not each.required
    }
    assert found == EXPECTED[record]
    assert {name: type(value) for name, value in found.items() if isinstance(value, bool)} == {
        name: type(value) for name, value in EXPECTED[record].items() if isinstance(value, bool)
    }
