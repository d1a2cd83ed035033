"""Loads the compiled contracts that the package contains. contracts/build.py compiles them."""

import json
from functools import cache
from importlib.resources import files
from typing import Any, final

from sightline.domain.value import Value


@final
class Artefact(Value, kw_only=True):
    """The compiled form of one contract."""

    name: str
    compiler: str
    source_sha256: str
    abi: list[dict[str, Any]]
    bytecode: bytes


@cache
def artefact(name: str) -> Artefact:
    """Load the artefact of a contract: TestUSDC, SessionSettlement or SessionEscrow."""
    text = files("sightline.chain.contracts").joinpath("compiled", f"{name}.json").read_text(encoding="ascii")
    content = json.loads(text)
    return Artefact(
        name=name,
        compiler=content["compiler"],
        source_sha256=content["sourceSha256"],
        abi=content["abi"],
        bytecode=bytes.fromhex(content["bytecode"].removeprefix("0x")),
    )
