"""Servers of one service on the bus in memory: the real messages between them, and video engines without media."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from sightline.cluster.bus.memory import MemoryBus, MemoryNetwork
from sightline.cluster.peers.peers import Peers
from sightline.cluster.routes import Routes
from sightline.cluster.video.backend import ClusterBackend, open_cluster_backend
from sightline.cluster.video.peers import RemoteVideoPeers
from sightline.domain.access import Holder
from sightline.ports.video import MediaEvent, SignalRequest, VideoInput
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.video.tokens import TokenMint, ref_of
from tests.http.fakes import ShownVideo
from tests.video.support.harness import SECRET


class OwnVideo(ShownVideo):
    """The inputs of one server, with the names and tokens of the embedded backend."""

    mint = TokenMint(SECRET)

    def __init__(self, name: str) -> None:
        super().__init__(SystemClock())
        self.base_url = f"http://{name}"
        self.hooks: list[bytes] = []
        self.hook_status = 200

    @property
    def sessions(self) -> set[str]:
        return set(self.inputs.values())

    def whep_url_for(self, whep_url: str, holder: Holder) -> str:
        return f"{whep_url}?of={holder.credential_id}"

    def describe_input(self, session_id: str) -> VideoInput:
        whip, whep = self.mint.token("whip", session_id), self.mint.token("whep", session_id)
        base = self.base_url
        return VideoInput(ref=ref_of(session_id), whip_url=f"{base}/whip/{whip}", whep_url=f"{base}/whep/{whep}")

    def has_input(self, session_id: str) -> bool:
        return session_id in self.sessions

    def session_of_signal(self, request: SignalRequest) -> str | None:
        return self.mint.session_of(request.kind, request.token)

    async def engine_hook(self, engine: str, headers: Mapping[str, str], body: bytes) -> int:
        await trio.lowlevel.checkpoint()
        self.hooks.append(body)
        return self.hook_status


def url_of(name: str) -> str:
    """URL of a server's internal listener, as its lease says."""
    return f"http://{name}.invalid"


@dataclass
class Member:
    """One server."""

    own: OwnVideo
    bus: MemoryBus
    peers: Peers
    backend: ClusterBackend
    owned: set[str]
    """Sessions whose shard it owns."""
    events: list[MediaEvent] = field(default_factory=list)


@dataclass
class Service:
    """The servers by name. `lease` says which of them have a valid lease, as the database would."""

    network: MemoryNetwork
    members: dict[str, Member] = field(default_factory=dict)

    def lease(self, *names: str) -> None:
        for member in self.members.values():
            member.peers.routes.read(dict.fromkeys(names, ()), urls={name: url_of(name) for name in names})


@asynccontextmanager
async def a_service(*names: str) -> AsyncIterator[Service]:
    service = Service(MemoryNetwork())
    async with trio.open_nursery() as nursery:
        for name in names:
            await nursery.start(_run_member, service, name)
        service.lease(*names)
        yield service
        nursery.cancel_scope.cancel()


async def _run_member(
    service: Service, name: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    own, bus = OwnVideo(name), service.network.join(name)
    owned: set[str] = set()
    peers = Peers(bus, Routes(name))
    port, clock = RemoteVideoPeers(peers, owned.__contains__), SystemClock()
    async with (
        open_cluster_backend(own, port, url=url_of(name), secret=SECRET, clock=clock, ids=SystemIds()) as backend,
        trio.open_nursery() as nursery,
    ):
        member = service.members[name] = Member(own, bus, peers, backend, owned)
        await nursery.start(peers.run)
        task_status.started()
        async for event in backend.events():
            member.events.append(event)
