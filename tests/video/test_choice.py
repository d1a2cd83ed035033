"""The settings select the backend, and the internal listener accepts its engine's callbacks."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from sightline.bootstrap.adapters.video import external_engine
from sightline.config import Settings
from sightline.http.internal.engine_hooks import EngineHookResources
from sightline.http.pipeline.call import Raw
from sightline.http.pipeline.routes import routes_of
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.system.secrets import load_secrets
from sightline.video.embedded import EmbeddedBackend
from sightline.video.external.cloudflare import Cloudflare
from sightline.video.external.engine import ExternalBackend
from sightline.video.external.mediamtx import MediaMtx
from sightline.video.options import Options
from tests.video.support.harness import SECRET, a_session_id
from tests.video.support.rights import Rights

CLOUDFLARE = {
    "video_backend": "cloudflare",
    "video_cloudflare_account": "acc",
    "video_cloudflare_token": "t",
    "video_cloudflare_hook_secret": "hook",
}
MEDIAMTX = {
    "video_backend": "mediamtx",
    "video_mediamtx_url": "http://m:8889/",
    "video_mediamtx_api_url": "http://m:9997",
}


def chosen(tmp_path: Path, **settings: Any) -> Any:
    secrets = load_secrets(tmp_path / "secrets.json", SystemIds())
    return external_engine(Settings(data_dir=tmp_path, **settings), secrets, SystemClock(), Rights().access)


def test_settings_choose_the_backend(tmp_path: Path):
    assert chosen(tmp_path) is None
    assert isinstance(chosen(tmp_path, **CLOUDFLARE), Cloudflare)
    mediamtx = chosen(tmp_path, **MEDIAMTX)
    assert isinstance(mediamtx, MediaMtx)
    assert mediamtx.describe(a_session_id()).whip_url.startswith("http://m:8889/live_")
    for name in ("mediamtx", "cloudflare"):
        with pytest.raises(ValueError, match="needs"):
            chosen(tmp_path, video_backend=name)


async def test_only_an_external_engine_takes_callbacks_and_it_checks_their_credential(tmp_path: Path):
    options = Options(secret=SECRET, public_url="http://unused", workers=1)
    assert await EmbeddedBackend(options, clock=SystemClock()).engine_hook("mediamtx", {}, b"{}") == 404
    mediamtx = chosen(tmp_path, **MEDIAMTX)
    backend = ExternalBackend(mediamtx, options, clock=SystemClock())
    session_id = a_session_id()
    mediamtx._open.add(session_id)
    made = mediamtx.describe(session_id)
    asked = {"action": "publish", "path": made.ref, "query": made.whip_url.partition("?")[2]}
    assert await backend.engine_hook("mediamtx", {}, orjson.dumps(asked)) == 200
    assert await backend.engine_hook("mediamtx", {}, orjson.dumps(asked | {"action": "read"})) == 401
    assert await backend.engine_hook("cloudflare", {}, orjson.dumps(asked)) == 404
    cloudflare = ExternalBackend(chosen(tmp_path, **CLOUDFLARE), options, clock=SystemClock())
    assert await cloudflare.engine_hook("cloudflare", {"cf-webhook-auth": "hook"}, b"{}") == 200
    assert await cloudflare.engine_hook("cloudflare", {"cf-webhook-auth": "guess"}, b"{}") == 401
    (route,) = routes_of(EngineHookResources(backend))
    assert (route.method, route.path, route.handler.__name__) == ("POST", "/internal/engines/{engine}", "take")
    assert Raw(status=401).status == 401
