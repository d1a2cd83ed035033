"""The dispatcher: one actor that indexes every ONLINE operator and picks one for each dispatch.

A picked operator is reserved until its workspace reports a change, so that two sessions are not sent to the same
operator; a reservation expires after `RESERVED_MS`. The index copies the store's rows and is rebuilt at every load.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, assert_never, final

import trio

from sightline.actors.deps import WORKSPACE, Deps
from sightline.actors.dispatch.conduct_book import NEW, ConductBook
from sightline.actors.dispatch.in_flight import DispatchesInFlight
from sightline.actors.dispatch.newcomer_turns import NewcomerTurns
from sightline.actors.dispatch.operator_index import IN_ORDER, NEW_FIRST, OperatorIndex
from sightline.actors.kernel import Context, Envelope, Lane
from sightline.actors.messages import (
    BeginDispatch,
    CountCells,
    CountOperators,
    DispatchEnded,
    DispatcherMessage,
    GetConduct,
    GetWorkspace,
    HasOperator,
    HeartbeatResumed,
    NoShow,
    OperatorChanged,
    PickOperator,
    PresenceProved,
    SaveConducts,
    SightingReport,
)
from sightline.domain.conduct import NO_SHOWS_WITHIN_MS, Conduct
from sightline.domain.errors import SightlineError
from sightline.domain.operator.model import Workspace
from sightline.domain.session.model import Operator
from sightline.domain.units import SECOND_MS

RESERVED_MS: Final = 5_000
"""Lifetime of a reservation."""
READS_MAX: Final = 32
"""Workspaces that are read at once."""
SEEN_KEPT: Final = 1_024
SAVE_TIMER: Final = "conduct"
SAVE_AFTER_MS: Final = 1_000
"""Changed records of wallets are stored together after this time."""


@final
class DispatcherActor:
    """Chooses operators."""

    def __init__(self, context: Context[DispatcherMessage], deps: Deps) -> None:
        self._context = context
        self._deps = deps
        self._book = ConductBook()
        self._index = OperatorIndex(deps.limits.seen_within_ms, self._book.rank)
        self._turns = NewcomerTurns()
        self._reserved: dict[str, tuple[int, Workspace]] = {}
        self._reservations: deque[tuple[int, str]] = deque()
        self._seen_ms: dict[str, int] = {}
        """When operators of other servers were seen last, by their reports."""
        self._reading: set[str] = set()
        self._in_flight = DispatchesInFlight()

    async def load(self) -> None:
        """Index every supplier that is ONLINE, by the stored records of their wallets."""
        self._book.load(await self._deps.store.conducts(since_ms=self._context.clock.now_ms() - NO_SHOWS_WITHIN_MS))
        for workspace in await self._deps.store.suppliers():
            self._index.put(self._newest(workspace), self._context.clock.now_ms())

    def snapshot(self) -> int:
        """How many operators can be picked now."""
        return len(self._index)

    def may_passivate(self) -> bool:
        """Never: it would forget the reservations."""
        return False

    async def handle(self, envelope: Envelope[DispatcherMessage]) -> None:
        """Take one turn."""
        now_ms = self._context.clock.now_ms()
        self._expire_reservations(now_ms)
        self._index.expire(now_ms, lambda workspace: self._newest(workspace).last_seen_at_ms)
        for wallet in self._book.back(now_ms):
            self._index.rank_again(wallet, now_ms)
        message = envelope.message
        match message:
            case OperatorChanged(workspace=workspace, is_loaded=is_loaded):
                self._take_change(workspace, now_ms, is_loaded=is_loaded)
            case HeartbeatResumed(workspace_id=workspace_id):
                self._index.seen(workspace_id, now_ms)
            case SightingReport(operators=operators):
                self._take_report(operators, now_ms)
            case BeginDispatch(consumer_workspace_id=consumer_id, session_id=session_id):
                envelope.reply(message, self._in_flight.begin(consumer_id, session_id, now_ms))
            case DispatchEnded(consumer_workspace_id=consumer_id, session_id=session_id):
                self._in_flight.end(consumer_id, session_id)
            case PickOperator():
                envelope.reply(message, self._pick(message, now_ms))
            case CountOperators(lat=lat, lng=lng):
                envelope.reply(message, self._index.count_covering(lat, lng))
            case HasOperator():
                envelope.reply(message, self._choose(message.lat, message.lng, message.requires_coverage) is not None)
            case CountCells():
                envelope.reply(message, self._index.coverage_cells())
            case NoShow(wallet_address=wallet, at_ms=at_ms):
                self._turns.failed(is_new=not self._book.of(wallet).is_proved)
                self._record(wallet, self._book.of(wallet).after_no_show(at_ms), now_ms)
            case PresenceProved(wallet_address=wallet, at_ms=at_ms):
                self._turns.proved(is_new=not self._book.of(wallet).is_proved)
                self._record(wallet, self._book.of(wallet).after_proof(at_ms), now_ms)
            case GetConduct(wallet_address=wallet):
                envelope.reply(message, self._book.of(wallet))
            case SaveConducts():
                self._save_conducts()
            case _:
                assert_never(message)

    def _take_change(self, workspace: Workspace, now_ms: int, *, is_loaded: bool) -> None:
        reserved = self._reserved.get(workspace.id)
        if is_loaded and reserved is not None and reserved[1].version == workspace.version:
            return  # loaded to handle the claim of the session for which it is reserved
        self._reserved.pop(workspace.id, None)
        self._index.put(workspace, now_ms)

    def _choose(self, lat: float, lng: float, requires_coverage: bool) -> Workspace | None:
        return self._index.choose(
            lat,
            lng,
            mode=self._deps.limits.dispatch_mode,
            excluded=frozenset(),
            requires_coverage=requires_coverage,
        )

    def _pick(self, pick: PickOperator, now_ms: int) -> Operator | None:
        mode, is_first = self._deps.limits.dispatch_mode, not pick.excluded
        ranks = NEW_FIRST if is_first and self._turns.is_due() else IN_ORDER
        found = self._index.choose(
            pick.lat,
            pick.lng,
            mode=mode,
            excluded=pick.excluded,
            ranks=ranks,
            requires_coverage=pick.requires_coverage,
        )
        if found is None:
            return None
        if is_first:
            self._turns.picked(is_new=self._index.rank(found.id) == NEW)
        self._index.remove(found.id)
        self._reserved[found.id] = (now_ms, found)
        self._reservations.append((now_ms, found.id))
        return found.as_operator()

    def _record(self, wallet: str, conduct: Conduct, now_ms: int) -> None:
        """Keep a wallet's new record, list its operators by it, and store it soon."""
        if not self._book.record(wallet, conduct):
            return
        self._index.rank_again(wallet, now_ms)
        if self._context.timers.due_ms(self._context.ref, SAVE_TIMER) is None:
            self._context.timers.set(self._context.ref, now_ms + SAVE_AFTER_MS, SaveConducts(), name=SAVE_TIMER)

    def _save_conducts(self) -> None:
        """Store the records that changed. What is lost when the server is killed before is a hint, not money."""
        conducts = self._book.take_unsaved()

        def again(_error: Exception) -> SaveConducts:
            self._book.not_saved(conducts)
            return SaveConducts()

        async def save() -> None:
            try:
                await self._deps.store.save_conducts(conducts)
            except SightlineError:
                await trio.sleep(SAVE_AFTER_MS / SECOND_MS)
                raise

        self._context.spawn(save, on_value=lambda _done: None, on_error=again, lane=Lane.CONTROL)

    def _expire_reservations(self, now_ms: int) -> None:
        while self._reservations and now_ms - self._reservations[0][0] >= RESERVED_MS:
            at_ms, workspace_id = self._reservations.popleft()
            reserved = self._reserved.get(workspace_id)
            if reserved is None or reserved[0] != at_ms:
                continue
            del self._reserved[workspace_id]
            self._index.put(self._newest(reserved[1]), now_ms)

    def _take_report(self, operators: Sequence[tuple[str, int, int]], now_ms: int) -> None:
        """Take a report of another server; read the operators whose last change was not told here."""
        for workspace_id, version, seen_ms in operators:
            known = self._index.get(workspace_id)
            if known is None and workspace_id in self._reserved:
                continue
            if known is None or known.version < version:
                self._read(workspace_id)
            else:
                self._seen_ms[workspace_id] = seen_ms
                if now_ms - seen_ms <= self._deps.limits.seen_within_ms:
                    self._index.seen(workspace_id, now_ms)
        if len(self._seen_ms) > 2 * len(self._index) + SEEN_KEPT:
            self._seen_ms = {known: at_ms for known, at_ms in self._seen_ms.items() if self._index.get(known)}

    def _read(self, workspace_id: str) -> None:
        """Ask a workspace for its present state."""
        if len(self._reading) >= READS_MAX or workspace_id in self._reading:
            return  # the next report names it again
        self._reading.add(workspace_id)
        workspace = self._context.registry.ref(WORKSPACE, workspace_id)

        async def read() -> Workspace | None:
            try:
                return await workspace.ask(GetWorkspace(), timeout_s=self._deps.limits.ask_timeout_s)
            finally:
                self._reading.discard(workspace_id)

        self._context.spawn(
            read,
            on_value=lambda found: None if found is None else OperatorChanged(found),
            on_error=lambda _error: None,
            lane=Lane.CONTROL,
        )

    def _newest(self, workspace: Workspace) -> Workspace:
        """The workspace as its actor last published it, else the given copy with its newest reported heartbeat."""
        known = self._context.registry.peek(WORKSPACE, workspace.id)
        if known is not None:
            return known
        seen_ms = self._seen_ms.get(workspace.id)
        return workspace if seen_ms is None else workspace.seen(workspace.last_sequence, seen_ms, workspace.last_place)
