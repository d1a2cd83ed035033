"""Web Push on virtual time against a push service of the test: what is sent, to whom, how often, and what is logged."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from sightline.domain.access import WalletPrincipal
from sightline.domain.session.messages import Event, EventKind
from sightline.domain.session.model import Session, SessionState
from sightline.ports.store import SessionWrite, ShardLease
from sightline.ports.webhooks import PUSH_LIFE_MS, PushSubscription
from sightline.system.ids import SystemIds
from sightline.webhooks.http_client import SendOutcome
from sightline.webhooks.push_encryption import Vapid, key_from
from sightline.webhooks.pushes import PushDispatcher, PushSubscriptions
from sightline.webhooks.sends import UnsentWatch
from simulation.memory.pushes import MemoryPushes, MemorySendQueues
from simulation.memory.webhooks import MemoryWebhooks
from tests.contract.builders import PAYEE, T0, a_session, an_id, an_operator, in_phase, recorded
from tests.webhooks.push_browser import PushBrowser, claims_of

ENDPOINT = "https://push.example.com/wp/a-capability"
CREATED, GONE, BUSY = SendOutcome(status=201), SendOutcome(410, "bad_status"), SendOutcome(503, "bad_status")


class VirtualTime:
    """Server time of the test's clock."""

    def now_ms(self) -> int:
        return T0 + round(trio.current_time() * 1_000)


@dataclass
class PushService:
    """Stands for the network: answers one outcome after the other, the last one for ever."""

    answers: list[SendOutcome] = field(default_factory=lambda: [CREATED])
    sent: list[tuple[float, str, dict[str, str], bytes]] = field(default_factory=list)
    fails_at: str = ""
    """A URL for which the client has a defect."""

    async def post(self, url: str, headers: dict[str, str], body: str | bytes) -> SendOutcome:
        await trio.lowlevel.checkpoint()
        assert isinstance(body, bytes)
        if url == self.fails_at:
            raise RuntimeError("a defect")
        self.sent.append((trio.current_time(), url, headers, body))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()


class Town:
    """One operator's workspace with a browser, and the service that sends to it."""

    def __init__(self) -> None:
        self.clock, self.workspace_id = VirtualTime(), an_id()
        self.sessions: dict[str, Session] = {}
        self.store = MemoryPushes(self.sessions.get, self.clock.now_ms)
        self.service, self.browser = PushService(), PushBrowser()
        self.vapid = Vapid(key_from(b"v" * 48), "mailto:ops@example.com")
        self.subscriptions = PushSubscriptions(self.store, self.vapid, self.clock, SystemIds())
        self.may_receive = True

    async def subscribe(self, endpoint: str = ENDPOINT) -> PushSubscription:
        principal = WalletPrincipal(
            session_id="s",
            wallet_address=PAYEE,
            workspace_id=self.workspace_id,
            role=None,
            signed_in_at_ms=0,
            expires_at_ms=0,
        )
        return await self.subscriptions.add(principal, endpoint=endpoint, **self.browser.keys)

    def assign(self) -> Session:
        session = in_phase(
            a_session(id=an_id(), lat=52.520008, lng=13.404954, instructions="Ring at Miller's"),
            SessionState.ASSIGNED,
            an_operator(self.workspace_id),
        )
        session, events = recorded(session, Event(EventKind.ASSIGNED, T0, ()))
        self.sessions[session.id] = session
        self.store.note_session(
            SessionWrite(lease=ShardLease(0, 0), session=session, events=events, at_ms=T0, due_at_ms=None)
        )
        return session

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[PushDispatcher]:
        dispatcher = PushDispatcher(
            self.store,
            self.service,  # type: ignore[arg-type]  # stands for the client
            self.vapid,
            clock=self.clock,
            ids=SystemIds(),
        )

        async def may_receive(_subscription: PushSubscription) -> bool:
            await trio.lowlevel.checkpoint()
            return self.may_receive

        dispatcher.may_receive = may_receive
        queues = MemorySendQueues(MemoryWebhooks(), self.store)
        watch = UnsentWatch(queues, webhooks=lambda: None, pushes=dispatcher.wake)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dispatcher.run)
            nursery.start_soon(watch.run)
            yield dispatcher
            nursery.cancel_scope.cancel()


@pytest.fixture
def town() -> Town:
    return Town()


async def test_a_job_is_sent_encrypted_urgent_and_short_lived_and_names_the_place_coarsely(
    town: Town, autojump_clock: MockClock
) -> None:
    await town.subscribe()
    session = town.assign()
    async with town.sending() as dispatcher:
        await trio.sleep(2)
    ((_, url, headers, body),) = town.service.sent
    assert url == ENDPOINT
    assert json.loads(town.browser.decrypt(body)) == {
        "sessionId": session.id,
        "lat": 52.52,
        "lng": 13.4,
        "maxDurationSeconds": session.terms.max_duration_s,
    }
    assert headers["urgency"] == "high"
    assert 0 < int(headers["ttl"]) <= PUSH_LIFE_MS // 1_000
    assert headers["topic"] == session.id.replace("-", "")
    assert headers["content-encoding"] == "aes128gcm"
    assert claims_of(headers["authorization"], town.subscriptions.public_key)["aud"] == "https://push.example.com"
    assert dispatcher.statistics.delivered == 1


async def test_two_messages_share_neither_key_pair_nor_salt(town: Town, autojump_clock: MockClock) -> None:
    await town.subscribe()
    town.assign()
    town.assign()
    async with town.sending():
        await trio.sleep(2)
    first, second = (body for *_, body in town.service.sent)
    assert first[:16] != second[:16]
    assert first[21:86] != second[21:86]


@pytest.mark.parametrize("status", [404, 410])
async def test_a_browser_that_is_gone_is_removed_and_nothing_is_repeated(
    town: Town, autojump_clock: MockClock, status: int
) -> None:
    town.service.answers = [SendOutcome(status, "bad_status")]
    await town.subscribe()
    town.assign()
    async with town.sending() as dispatcher:
        await trio.sleep(120)
    assert len(town.service.sent) == 1
    assert await town.subscriptions.list(town.workspace_id) == []
    assert dispatcher.statistics.removed == 1


async def test_a_failed_push_is_tried_again_until_it_is_delivered(town: Town, autojump_clock: MockClock) -> None:
    town.service.answers = [BUSY, SendOutcome(error="timeout"), SendOutcome(429, "bad_status", 9), CREATED]
    await town.subscribe()
    town.assign()
    async with town.sending() as dispatcher:
        await trio.sleep(120)
    times = [at for at, *_ in town.service.sent]
    assert len(times) == 4
    assert times[3] - times[2] >= 9, "Retry-After is obeyed"
    assert (dispatcher.statistics.delivered, dispatcher.statistics.failed) == (1, 3)


async def test_a_push_is_given_up_when_the_job_is_old(town: Town, autojump_clock: MockClock) -> None:
    town.service.answers = [BUSY]
    await town.subscribe()
    town.assign()
    async with town.sending() as dispatcher:
        await trio.sleep(300)
    assert town.service.sent[-1][0] * 1_000 < PUSH_LIFE_MS
    assert dispatcher.statistics.given_up == 1


@pytest.mark.parametrize("outcome", [SendOutcome(403, "bad_status"), SendOutcome(error="address_refused")])
async def test_a_push_that_is_refused_is_not_repeated(
    town: Town, autojump_clock: MockClock, outcome: SendOutcome
) -> None:
    town.service.answers = [outcome]
    await town.subscribe()
    town.assign()
    async with town.sending():
        await trio.sleep(120)
    assert len(town.service.sent) == 1
    assert len(await town.subscriptions.list(town.workspace_id)) == 1, "the subscription is not the cause"


async def test_who_may_no_longer_operate_is_told_nothing(town: Town, autojump_clock: MockClock) -> None:
    await town.subscribe()
    town.may_receive = False
    town.assign()
    async with town.sending():
        await trio.sleep(5)
    assert town.service.sent == []
    assert await town.subscriptions.list(town.workspace_id) == []


async def test_neither_the_url_nor_the_keys_of_a_browser_are_logged_or_shown(
    town: Town, autojump_clock: MockClock
) -> None:
    made = await town.subscribe()
    town.service.answers = [SendOutcome(403, "bad_status"), GONE]
    with capture_logs() as logs:
        town.assign()
        town.assign()
        async with town.sending():
            await trio.sleep(60)
    assert {entry["event"] for entry in logs} >= {"push_given_up", "push_subscription_removed"}
    for text in (repr(logs), repr(made)):
        assert "a-capability" not in text
        assert town.browser.keys["auth"] not in text
        assert repr(made.auth) not in text


async def test_a_defect_in_one_push_stops_no_other(town: Town, autojump_clock: MockClock) -> None:
    await town.subscribe()
    await town.subscribe("https://push.example.com/wp/another")
    town.service.fails_at = ENDPOINT
    town.assign()
    async with town.sending() as dispatcher:
        await trio.sleep(5)
        assert dispatcher.statistics.delivered == 1
        town.service.fails_at = ""
        await trio.sleep(30)
        assert dispatcher.statistics.delivered == 2, "its claim has expired"
