"""Compiles the contracts into the artefacts that the package contains. Run it by hand after a source has changed.

python contracts/build.py
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import vyper
from vyper.compiler import compile_code
from vyper.compiler.settings import OptimizationLevel, Settings

SOURCES = Path(__file__).resolve().parent
ARTEFACTS = SOURCES.parent / "sightline" / "chain" / "contracts" / "compiled"
NAMES = ("TestUSDC", "SessionSettlement", "SessionEscrow")
EVM_VERSION = "cancun"
BYTES_FORMS = {
    "TestUSDC": ("permit", "transferWithAuthorization", "receiveWithAuthorization", "cancelAuthorization"),
}
"""Functions that a contract also serves with a signature in bytes in place of v, r, s, from its __default__."""


def bytes_forms(name: str, abi: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ABI of the functions that only __default__ knows, because Vyper has no overloading."""
    signature = {"name": "signature", "type": "bytes"}
    functions = {item["name"]: item for item in abi if item["type"] == "function"}
    return [
        functions[form] | {"inputs": [*functions[form]["inputs"][:-3], signature]} for form in BYTES_FORMS.get(name, ())
    ]


def compile_contract(name: str) -> dict[str, object]:
    """Compile one contract. The result is reproducible: it depends on source and compiler only.

    Raises:
        UnicodeDecodeError: The source is not ASCII: this compiler misreads literals after other bytes.
    """
    source = (SOURCES / f"{name}.vy").read_bytes()
    text = source.decode("ascii")
    settings = Settings(evm_version=EVM_VERSION, optimize=OptimizationLevel.GAS)
    output = compile_code(text, output_formats=["abi", "bytecode", "bytecode_runtime"], settings=settings)
    return {
        "name": name,
        "compiler": f"vyper {vyper.__version__}",
        "evmVersion": EVM_VERSION,
        "sourceSha256": hashlib.sha256(source).hexdigest(),
        "abi": output["abi"] + bytes_forms(name, output["abi"]),
        "bytecode": output["bytecode"],
        "runtimeBytecode": output["bytecode_runtime"],
    }


def artefact_text(name: str) -> str:
    """Format the artefact as it is committed."""
    return json.dumps(compile_contract(name), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    ARTEFACTS.mkdir(exist_ok=True)
    for contract in NAMES:
        (ARTEFACTS / f"{contract}.json").write_text(artefact_text(contract), encoding="ascii")
