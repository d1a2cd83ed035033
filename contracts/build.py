"""Compiles the contracts into the artefacts that the package contains. Run it by hand after a source has changed.

python contracts/build.py
"""

import hashlib
import json
from pathlib import Path

import vyper
from vyper.compiler import compile_code
from vyper.compiler.settings import OptimizationLevel, Settings

SOURCES = Path(__file__).resolve().parent
ARTEFACTS = SOURCES.parent / "sightline" / "chain" / "contracts" / "compiled"
NAMES = ("TestUSDC", "SessionSettlement")
EVM_VERSION = "cancun"


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
        "abi": output["abi"],
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
