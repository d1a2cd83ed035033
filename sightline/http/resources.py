"""The table of every call, from the resources."""

from sightline.http.api_keys import ApiKeyResources
from sightline.http.deps import Deps, InternalDeps
from sightline.http.events import EventResources
from sightline.http.frames import FrameResources
from sightline.http.health_config import HealthAndConfig
from sightline.http.internal import InternalResources
from sightline.http.location import LocationResources
from sightline.http.me_auth import MeAndAuth
from sightline.http.members import MemberResources
from sightline.http.once import Once
from sightline.http.quotes import QuoteResources
from sightline.http.routes import AnyRoute
from sightline.http.rpc_proxy import RpcProxyResource
from sightline.http.sessions import SessionResources
from sightline.http.settlements_wallet import MoneyResources
from sightline.http.signalling import SignallingResources
from sightline.http.streams import StreamSlots
from sightline.http.workspaces import Workspaces


def public_routes(deps: Deps) -> tuple[AnyRoute, ...]:
    """What the public listener answers."""
    once = Once(deps.store, deps.relations)
    slots = StreamSlots(deps.options.streams_max)
    rpc = () if deps.rpc is None else RpcProxyResource(deps.rpc).routes()
    return (
        *HealthAndConfig(deps).routes(),
        *MeAndAuth(deps).routes(),
        *Workspaces(deps, once).routes(),
        *MemberResources(deps, once).routes(),
        *ApiKeyResources(deps, once).routes(),
        *LocationResources(deps).routes(),
        *QuoteResources(deps).routes(),
        *SessionResources(deps).routes(),
        *FrameResources(deps, slots).routes(),
        *MoneyResources(deps).routes(),
        *EventResources(deps, slots).routes(),
        *SignallingResources(deps).routes(),
        *rpc,
    )


def internal_routes(deps: InternalDeps) -> tuple[AnyRoute, ...]:
    """What the internal listener answers."""
    return InternalResources(deps).routes()
