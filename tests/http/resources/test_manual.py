"""The manual at /manual/: built files with a policy of their own, and a hint where it has not been built."""

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sightline.http.console.manual import ManualResources
from sightline.http.pipeline.errors import ApiError


def a_call(file: str = "") -> Any:
    return SimpleNamespace(headers={"accept-encoding": "gzip"}, params={"file": file})


@pytest.fixture
def manual(tmp_path: Path) -> ManualResources:
    for name, text in (("index.html", "<h1>"), ("images/a.svg", "<svg>"), ("assets/x.0123abcd.min.js", "1")):
        path = tmp_path / f"{name}.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
    return ManualResources(tmp_path)


async def test_files_are_found_by_path_and_named_ones_are_immutable(manual: ManualResources) -> None:
    page, script = dict((await manual.page(a_call())).headers), await manual.file(a_call("assets/x.0123abcd.min.js"))
    assert page["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self';" in page["content-security-policy"]
    assert page["cache-control"] == "no-cache"
    assert "immutable" in dict(script.headers)["cache-control"]


async def test_a_diagram_may_have_its_own_style_but_runs_no_script(manual: ManualResources) -> None:
    policy = dict((await manual.file(a_call("images/a.svg"))).headers)["content-security-policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"


@pytest.mark.parametrize("name", ["../pyproject.toml", "images", "images/b.svg", "index.html.gz"])
async def test_a_path_that_is_no_built_file_is_unknown(manual: ManualResources, name: str) -> None:
    with pytest.raises(ApiError) as refused:
        await manual.file(a_call(name))
    assert (refused.value.status, refused.value.detail) == (404, "route:unknown")


async def test_a_checkout_without_the_manual_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="NOT_FOUND manual:notBuilt") as refused:
        await ManualResources(tmp_path / "nothing").page(a_call())
    assert "make docs" in (refused.value.hint or "")
