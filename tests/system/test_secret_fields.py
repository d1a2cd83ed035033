"""No value prints a secret: msgspec has no field that is left out of `repr`, so each class says it by `hiding`."""

import importlib
import pkgutil
from collections.abc import Iterator

from msgspec import Struct

import sightline
from sightline.system.logs import SECRET_FIELDS

NO_SECRETS = {"ChainFacts", "Domains", "ExactAsset", "Watched"} | {"Answer", "Staged", "FoundToken"}
"""Their `token` is the address of a contract, a consistency token, or a value that hides its own secret."""
SECRET = "s3cret" * 8


def derived(base: type[Struct]) -> Iterator[type[Struct]]:
    for each in base.__subclasses__():
        yield each
        yield from derived(each)


def is_printed(kind: type[Struct], name: str) -> bool:
    return SECRET in repr(kind(**dict.fromkeys(kind.__struct_fields__, "other") | {name: SECRET}))


def test_a_field_with_the_name_of_a_secret_is_not_printed() -> None:
    for module in pkgutil.walk_packages(sightline.__path__, "sightline."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = [each for each in derived(Struct) if each.__module__.startswith("sightline.")]
    named = [(each, name) for each in ours for name in each.__struct_fields__ if name in SECRET_FIELDS]
    assert len(named) > 20
    assert {each.__name__ for each, _ in named} >= NO_SECRETS
    assert [(each, name) for each, name in named if each.__name__ not in NO_SECRETS and is_printed(each, name)] == []
