"""The table of every call, from the resources."""

from sightline.http.deps import Deps, InternalDeps
from sightline.http.internal.service import InternalResources
from sightline.http.pipeline.idempotency import Once
from sightline.http.pipeline.routes import AnyRoute
from sightline.http.resources.api_keys import ApiKeyResources
from sightline.http.resources.events import EventResources
from sightline.http.resources.frames import FrameResources
from sightline.http.resources.location import LocationResources
from sightline.http.resources.me_auth import MeAndAuth
from sightline.http.resources.members import MemberResources
from sightline.http.resources.quotes import QuoteResources
from sightline.http.resources.rpc_proxy import RpcProxyResource
from sightline.http.resources.service import HealthAndConfig
from sightline.http.resources.sessions import SessionResources
from sightline.http.resources.settlements_wallet import MoneyResources
from sightline.http.resources.signalling import SignallingResources
from sightline.http.resources.streams import StreamSlots
from sightline.http.resources.workspaces import Workspaces


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
