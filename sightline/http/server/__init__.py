"""The HTTP server: sockets, parsers, HTTP/2 by Hypercorn, WebSockets. It runs one ASGI application."""

from sightline.http.server.asgi import ASGIApp as ASGIApp
from sightline.http.server.asgi import ClientGoneError as ClientGoneError
from sightline.http.server.asgi import Headers as Headers
from sightline.http.server.asgi import Message as Message
from sightline.http.server.asgi import Receive as Receive
from sightline.http.server.asgi import Scope as Scope
from sightline.http.server.asgi import Send as Send
from sightline.http.server.lifespan import LifespanError as LifespanError
from sightline.http.server.options import Bound as Bound
from sightline.http.server.options import Fault as Fault
from sightline.http.server.options import Limits as Limits
from sightline.http.server.options import ListenerOptions as ListenerOptions
from sightline.http.server.options import RenderedFault as RenderedFault
from sightline.http.server.options import ServerOptions as ServerOptions
from sightline.http.server.options import TlsOptions as TlsOptions
from sightline.http.server.passing import ConnectionPassing as ConnectionPassing
from sightline.http.server.proxies import TrustedProxies as TrustedProxies
from sightline.http.server.scope import MADE_OF_HEAD as MADE_OF_HEAD
from sightline.http.server.serve import serve as serve
