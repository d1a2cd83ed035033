"""Hints between servers: what another server would otherwise notice only when it looks again. Each may be lost."""

from sightline.actors.messages import SignInEnded, SuspensionsChanged, WakeRole
from sightline.actors.service.suspensions import Suspensions
from sightline.chain.service import ChainService
from sightline.cluster.peers.peers import Peers
from sightline.identity.wallet_sessions import WalletSessions
from sightline.ports.leases import ServerRole


def connect_wakeups(peers: Peers, chain: ChainService, suspensions: Suspensions) -> None:
    """Exchange hints with other servers: wake relayer and watcher, and read the suspensions again."""
    chain.wake_elsewhere = lambda role: peers.tell_all(WakeRole(role.value))
    peers.listen(WakeRole, lambda _sender, wake: _wake(chain, wake))
    suspensions.on_changed = lambda: peers.tell_all(SuspensionsChanged())
    peers.listen(SuspensionsChanged, lambda _sender, _changed: suspensions.wake())


def connect_sign_ins(peers: Peers, sessions: WalletSessions) -> None:
    """Tell other servers which sign-ins were ended here, and refuse those that were ended there."""
    sessions.on_ended = lambda session_id: peers.tell_all(SignInEnded(session_id))
    peers.listen(SignInEnded, lambda _sender, ended: sessions.forget(ended.session_id))


def _wake(chain: ChainService, wake: WakeRole) -> None:
    if wake.role in {role.value for role in ServerRole}:  # a newer server may know more roles
        chain.wake_here(ServerRole(wake.role))
