"""Prices: the present rate of a point, quotes that lock a rate, and the rate of a new session."""

from typing import Final, final

from sightline.actors.deps import DISPATCHER, Deps
from sightline.actors.kernel.registry import Registry
from sightline.actors.messages import CountOperators
from sightline.actors.refusals import QUOTE_CONSUMED
from sightline.actors.shards import DISPATCHER_ID
from sightline.actors.types import Answer, NewSession
from sightline.domain.errors import RefusedError
from sightline.domain.geofence import distance_m
from sightline.domain.pricing import Price, Quote, price
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.model import SessionState
from sightline.domain.settlement import BASIS_POINTS
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.store import SessionQuery, SessionView

OWN_SESSIONS_MAX: Final = 20
"""Running sessions of the caller that are looked at where no operator is free."""
_NOBODY: Final = "00000000-0000-0000-0000-000000000000"
"""Stands for the workspace of a caller that has none: its demand is not left out."""


@final
class Pricing:
    """Prices a point by its supply and demand."""

    def __init__(self, registry: Registry, deps: Deps) -> None:
        self._registry = registry
        self._deps = deps

    async def quote(self, workspace_id: str, lat: float, lng: float, duration_s: int) -> Answer[Quote]:
        """Price a point, and keep the price for a while."""
        spot, supply = await self._spot(workspace_id, lat, lng)
        now_ms = self._deps.clock.now_ms()
        quote = Quote(
            id=self._deps.ids.uuid(),
            workspace_id=workspace_id,
            lat=lat,
            lng=lng,
            duration_s=duration_s,
            price=spot,
            available_operators=supply,
            created_at_ms=now_ms,
            expires_at_ms=now_ms + self._deps.limits.quote_ttl_ms,
            own_session_id=await self._own_session(workspace_id, lat, lng, now_ms) if supply == 0 else None,
        )
        await self._deps.store.insert_quote(quote)
        return Answer(quote, now_ms)

    async def rate_for_stranger(self, lat: float, lng: float) -> MicroUsdc:
        """The spot rate of a point for a caller without a workspace."""
        spot, _ = await self._spot(_NOBODY, lat, lng)
        return spot.rate

    async def rate_for(self, workspace_id: str, new: NewSession) -> MicroUsdc:
        """The rate of a new session: of the quote that it names, or the spot rate."""
        if new.quote_id is None:
            spot, _ = await self._spot(workspace_id, new.lat, new.lng)
            return spot.rate
        quote = await self.require_quote(new.quote_id, workspace_id, new.max_duration_s, (new.lat, new.lng))
        return quote.price.rate

    async def require_quote(
        self, quote_id: str, workspace_id: str, max_duration_s: int, place: tuple[float, float] | None = None
    ) -> Quote:
        """Return a workspace's quote that can be used for a session of this length, and at this place if one is given.

        Raises:
            RefusedError: It is unknown, used, expired, for a shorter session or for another place.
        """
        quote = await self._deps.store.load_quote(quote_id)
        if quote is None or quote.workspace_id != workspace_id:
            raise RefusedError(Refusal(Code.NOT_FOUND, "pricing:quote", "Quote not found"))
        if quote.consumed_by is not None:
            used = f"The quote has been used, for session {quote.consumed_by}"
            raise RefusedError(replace(QUOTE_CONSUMED, message=used))
        if self._deps.clock.now_ms() >= quote.expires_at_ms:
            expired = Refusal(Code.INVALID_STATE, "pricing:quoteExpired", "The quote has expired", state="EXPIRED")
            raise RefusedError(expired)
        is_elsewhere = place is not None and distance_m(quote.lat, quote.lng, *place) > self._deps.limits.quote_radius_m
        if max_duration_s > quote.duration_s or is_elsewhere:
            raise RefusedError(_mismatch(quote, max_duration_s, place))
        return quote

    async def _own_session(self, workspace_id: str, lat: float, lng: float, now_ms: int) -> str | None:
        """The newest running session of a consumer whose operator covers a point: it is why that one is not free."""
        running = await self._deps.store.list_sessions(
            SessionQuery(
                workspace_id=workspace_id,
                view=SessionView.CONSUMER,
                now_ms=now_ms,
                limit=OWN_SESSIONS_MAX,
                states=frozenset({SessionState.ASSIGNED, SessionState.LIVE}),
            )
        )
        ids = [session.operator.workspace_id for session in running if session.operator is not None]
        found = {each.id: each for each in (await self._deps.store.workspaces(ids) if ids else ())}
        for session in running:
            workspace = found.get(session.operator.workspace_id) if session.operator is not None else None
            if workspace is not None and (workspace.covers(lat, lng)):
                return session.id
        return None

    async def _spot(self, workspace_id: str, lat: float, lng: float) -> tuple[Price, int]:
        limits, now_ms = self._deps.limits, self._deps.clock.now_ms()
        dispatcher = self._registry.ref(DISPATCHER, DISPATCHER_ID)
        supply: int = await dispatcher.ask(CountOperators(lat, lng), timeout_s=limits.ask_timeout_s)
        demand = await self._deps.store.demand_near(
            lat=lat,
            lng=lng,
            within_m=limits.demand_radius_m,
            since_ms=now_ms - limits.demand_window_ms,
            now_ms=now_ms,
            not_of=workspace_id,
        )
        zone = f"{int(lat // 1)},{int(lng // 1)}"
        corridor_bps = limits.corridors.get(zone, BASIS_POINTS)
        return price(limits.base_rate, supply=supply, demand=demand, corridor_bps=corridor_bps), supply


def _mismatch(quote: Quote, duration_s: int, place: tuple[float, float] | None) -> Refusal:
    """Build the refusal of a quote for another place or a shorter session: it names both sides."""
    where = "" if place is None else f" at {place[0]:.6f}, {place[1]:.6f}"
    said = (
        f"The quote is for {quote.duration_s} s at {quote.lat:.6f}, {quote.lng:.6f}; this request is for "
        f"{duration_s} s{where}"
    )
    return Refusal(Code.INVALID_INPUT, "pricing:quoteMismatch", said)
