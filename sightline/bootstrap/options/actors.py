"""The business rules, in the form that the actors need."""

from sightline.actors.deps import ActorLimits
from sightline.config import Settings
from sightline.domain.geofence import FenceLimits
from sightline.domain.metering import MeterLimits
from sightline.domain.operator.machine import AcceptPolicy
from sightline.domain.session.model import SessionLimits
from sightline.domain.units import SECOND_MS, MicroUsdc


def actor_limits(settings: Settings) -> ActorLimits:
    """Build the limits of the actors from the settings."""
    meter = MeterLimits(
        silence_ms=settings.silence_seconds * SECOND_MS,
        grace_ms=settings.silence_grace_seconds * SECOND_MS,
        pause_max_ms=settings.pause_max_seconds * SECOND_MS,
        paused_total_max_ms=settings.paused_total_max_seconds * SECOND_MS,
    )
    fence = FenceLimits(
        accuracy_max_m=settings.accuracy_max_meters,
        outside_fixes=settings.outside_fixes,
        coarse_fixes=settings.coarse_fixes,
    )
    session = SessionLimits(
        start_timeout_ms=settings.start_timeout_seconds * SECOND_MS,
        drone_start_timeout_ms=settings.drone_start_timeout_seconds * SECOND_MS,
        meter=meter,
        fence=fence,
    )
    return ActorLimits(
        session=session,
        platform_fee_bps=settings.platform_fee_bps,
        minimum_s=settings.minimum_seconds,
        base_rate=MicroUsdc(settings.base_rate_micro_usdc),
        corridors=settings.corridors,
        quote_ttl_ms=settings.quote_ttl_seconds * SECOND_MS,
        dispatch_mode=settings.dispatch_mode,
        seen_within_ms=settings.seen_within_seconds * SECOND_MS,
        accept=AcceptPolicy(
            assignments_max=settings.operator_assignments_max,
            is_verified=settings.accept_policy == "verified",
            seen_within_ms=settings.seen_within_seconds * SECOND_MS,
        ),
        unstarted_dispatches_max=settings.consumer_dispatches_max,
        dispatch_ack_ms=settings.dispatch_ack_seconds * SECOND_MS,
        unfunded_sessions_max=settings.unfunded_sessions_max,
        funds_policy=settings.funds_policy,
    )
