"""The table of every call, from the resources."""

from sightline.http.console.manual import ManualResources
from sightline.http.console.pages import AuthorityResource, ConsoleOptions, ConsoleResources, OpsResources
from sightline.http.internal.service import InternalResources
from sightline.http.pipeline.idempotency import Idempotency
from sightline.http.pipeline.routes import AnyRoute, routes_of
from sightline.http.resources.api_keys import ApiKeyResources
from sightline.http.resources.events import EventResources
from sightline.http.resources.frames import ClipResources, FrameResources
from sightline.http.resources.invitations import InvitationResources
from sightline.http.resources.location import LocationResources
from sightline.http.resources.me_auth import MeAndAuth
from sightline.http.resources.members import MemberResources
from sightline.http.resources.money.escrow import EscrowResources
from sightline.http.resources.money.receipts import ReceiptResources
from sightline.http.resources.money.statements import StatementResources
from sightline.http.resources.money.usage import UsageResources
from sightline.http.resources.money.wallet import MoneyResources
from sightline.http.resources.oauth.consent import ConsentResources
from sightline.http.resources.oauth.endpoints import OAuthResources
from sightline.http.resources.quotes import QuoteResources
from sightline.http.resources.rpc_proxy import RpcProxyResource
from sightline.http.resources.service import HealthAndConfig
from sightline.http.resources.sessions import SessionResources
from sightline.http.resources.shares.shares import ShareResources
from sightline.http.resources.signalling import SignallingResources
from sightline.http.resources.streams import StreamSlots, StreamTicketResources
from sightline.http.resources.webhooks.deliveries import WebhookDeliveryResources
from sightline.http.resources.webhooks.endpoints import WebhookEndpointResources
from sightline.http.resources.webhooks.pushes import PushResources
from sightline.http.resources.workspaces import Workspaces
from sightline.http.resources.x402.views import PaidViewResources
from sightline.http.services import InternalServices, Services


def public_routes(services: Services) -> tuple[AnyRoute, ...]:
    """What the public listener answers."""
    idempotency = Idempotency(services.store, services.clock)
    slots = StreamSlots(services.options.streams_max)
    rpc = () if services.rpc is None else routes_of(RpcProxyResource(services.rpc))
    ca = services.options.ca_certificate
    return (
        *routes_of(HealthAndConfig(services)),
        *routes_of(MeAndAuth(services)),
        *routes_of(Workspaces(services)),
        *routes_of(MemberResources(services, idempotency)),
        *routes_of(InvitationResources(services, idempotency)),
        *routes_of(ApiKeyResources(services, idempotency)),
        *routes_of(OAuthResources(services)),
        *routes_of(ConsentResources(services, idempotency)),
        *routes_of(LocationResources(services)),
        *routes_of(QuoteResources(services)),
        *routes_of(SessionResources(services)),
        *routes_of(ShareResources(services, idempotency)),
        *routes_of(FrameResources(services, slots)),
        *routes_of(ClipResources(services)),
        *routes_of(MoneyResources(services, idempotency)),
        *routes_of(ReceiptResources(services)),
        *routes_of(EscrowResources(services)),
        *routes_of(PaidViewResources(services)),
        *routes_of(UsageResources(services)),
        *routes_of(StatementResources(services)),
        *routes_of(EventResources(services, slots)),
        *routes_of(StreamTicketResources(services)),
        *routes_of(SignallingResources(services)),
        *routes_of(WebhookEndpointResources(services, idempotency)),
        *routes_of(WebhookDeliveryResources(services, idempotency)),
        *routes_of(PushResources(services, idempotency)),
        *rpc,
        *(() if ca is None else routes_of(AuthorityResource(ca))),
        *routes_of(ConsoleResources(_console_options(services))),
        *routes_of(ManualResources()),
    )


def _console_options(services: Services) -> ConsoleOptions:
    rpc = () if services.chain.rpc_is_private else (services.chain.rpc_url,)
    return ConsoleOptions(
        connect_urls=(*rpc, *services.options.media_urls),
        tiles_url=services.options.map_tiles_url,
        tiles_attribution=services.options.map_attribution,
        streets_path=services.options.map_streets_path,
        postcodes_path=services.options.map_postcodes_path,
    )


def internal_routes(services: InternalServices) -> tuple[AnyRoute, ...]:
    """What the internal listener answers."""
    return (*routes_of(InternalResources(services)), *routes_of(OpsResources()))
