"""Web Push in memory, with the contract of Postgres; for tests."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from sightline.domain.session.messages import EventKind
from sightline.domain.session.model import Assigned, Session
from sightline.domain.value import replace
from sightline.ports.store import SessionWrite
from sightline.ports.webhooks import (
    PUSH_LEASE_MS,
    PUSH_LIFE_MS,
    PUSHES_AT_ONCE_MAX,
    PushJob,
    PushSubscription,
    Unsent,
)
from simulation.memory.webhooks import MemoryWebhooks


@dataclass(slots=True)
class _Waiting:
    created_at_ms: int
    next_at_ms: int
    attempts: int = 0
    lease_until_ms: int = 0


@final
class MemoryPushes:
    """Implements `PushStore` with dictionaries."""

    def __init__(self, session_of: Callable[[str], Session | None], now_ms: Callable[[], int] = lambda: 0) -> None:
        """Create an empty store. `now_ms` is what the database's clock is on Postgres."""
        self._session_of = session_of
        self._now_ms = now_ms
        self._subscriptions: dict[str, PushSubscription] = {}
        self._waiting: dict[tuple[str, str], _Waiting] = {}

    def note_session(self, write: SessionWrite) -> None:
        """Queue a push for every subscription of the operator, if the session was assigned."""
        operator, now_ms = write.session.operator, self._now_ms()
        if operator is None or all(each.event.kind is not EventKind.ASSIGNED for each in write.events):
            return
        for each in self._subscriptions.values():
            if each.workspace_id == operator.workspace_id:
                self._waiting[each.id, write.session.id] = _Waiting(now_ms, now_ms)

    async def add_subscription(self, subscription: PushSubscription, *, limit: int) -> PushSubscription | None:
        """Store or renew a subscription."""
        others = await self.subscriptions(subscription.workspace_id)
        known = next((each for each in others if each.endpoint == subscription.endpoint), None)
        if known is None and len(others) >= limit:
            return None
        kept = subscription if known is None else replace(subscription, id=known.id)
        self._subscriptions[kept.id] = kept
        return kept

    async def subscriptions(self, workspace_id: str) -> Sequence[PushSubscription]:
        """The subscriptions of a workspace."""
        found = [each for each in self._subscriptions.values() if each.workspace_id == workspace_id]
        return sorted(found, key=lambda each: each.id)

    async def remove_subscription(self, workspace_id: str, subscription_id: str) -> PushSubscription | None:
        """Delete a subscription."""
        found = self._subscriptions.get(subscription_id)
        return self._subscriptions.pop(subscription_id) if found and found.workspace_id == workspace_id else None

    def has_unsent(self) -> bool:
        """Whether a push waits."""
        return bool(self._waiting)

    async def claim_pushes(self, *, limit: int) -> Sequence[PushJob]:
        """Claim due pushes."""
        now_ms = self._now_ms()
        self._waiting = {key: each for key, each in self._waiting.items() if self._is_current(key, each, now_ms)}
        flying: Counter[str] = Counter()
        for (subscription_id, _), each in self._waiting.items():
            flying[self._subscriptions[subscription_id].workspace_id] += each.lease_until_ms > now_ms
        jobs: list[PushJob] = []
        for (subscription_id, session_id), each in sorted(self._waiting.items(), key=lambda item: item[1].next_at_ms):
            subscription, session = self._subscriptions[subscription_id], self._session_of(session_id)
            is_free = each.lease_until_ms <= now_ms and flying[subscription.workspace_id] < PUSHES_AT_ONCE_MAX
            if each.next_at_ms <= now_ms and is_free and session is not None and len(jobs) < limit:
                flying[subscription.workspace_id] += 1
                each.lease_until_ms = now_ms + PUSH_LEASE_MS
                left_ms = each.created_at_ms + PUSH_LIFE_MS - now_ms
                jobs.append(
                    PushJob(subscription=subscription, session=session, attempts=each.attempts, left_ms=left_ms)
                )
        return jobs

    def _is_current(self, key: tuple[str, str], waiting: _Waiting, now_ms: int) -> bool:
        subscription, session = self._subscriptions.get(key[0]), self._session_of(key[1])
        return (
            waiting.created_at_ms > now_ms - PUSH_LIFE_MS
            and subscription is not None
            and session is not None
            and isinstance(session.phase, Assigned)
            and session.operator is not None
            and session.operator.workspace_id == subscription.workspace_id
        )

    async def finish_push(self, job: PushJob) -> None:
        """Delete a push."""
        if self._mine(job) is not None:
            del self._waiting[job.subscription.id, job.session.id]

    async def retry_push(self, job: PushJob, *, after_ms: int) -> None:
        """Make a push due again."""
        mine = self._mine(job)
        if mine is not None:
            mine.attempts += 1
            mine.lease_until_ms, mine.next_at_ms = 0, self._now_ms() + after_ms

    def _mine(self, job: PushJob) -> _Waiting | None:
        found = self._waiting.get((job.subscription.id, job.session.id))
        return found if found is not None and found.attempts == job.attempts and found.lease_until_ms else None


@final
class MemorySendQueues:
    """Implements `SendQueues`."""

    def __init__(self, webhooks: MemoryWebhooks, pushes: MemoryPushes) -> None:
        self._webhooks = webhooks
        self._pushes = pushes

    async def unsent(self) -> Unsent:
        """Ask both."""
        return Unsent(webhooks=self._webhooks.has_unsent(), pushes=self._pushes.has_unsent())
