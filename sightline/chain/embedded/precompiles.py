"""An import hook by which py-evm does not load the precompiles that the embedded chain disables.

py-evm computes the elliptic curves of its precompiles when it is imported: 0.4 s of CPU of 1.05 s. The embedded chain
has none of them (`vm.UNAVAILABLE`). What py-evm takes from their modules is a stand-in, which `vm` replaces.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

LEFT_OUT: Final = frozenset(
    f"eth.precompiles.{name}" for name in ("ecadd", "ecmul", "ecpairing", "blake2", "bls12_381")
)


def _stand_in(*_arguments: object, **_options: object) -> object:
    """Takes the place of a precompile, and of the function that builds one for a gas price."""
    return _stand_in


class _LeftOut(ModuleType):
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in LEFT_OUT else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LeftOut(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass  # its names are made when they are asked for


def leave_out() -> None:
    """Leave the modules out of all later imports. No effect where py-evm is imported already."""
    sys.meta_path.insert(0, _Finder())
