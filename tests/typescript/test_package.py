"""The TypeScript package: its own tests, and the packed archive in a program elsewhere."""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "packages" / "sightline-js"
PROGRAMS = [Path(__file__).with_name("program.ts"), Path(__file__).with_name("types.ts")]
STRICT = ("--strict", "--noEmit", "--exactOptionalPropertyTypes", "--target", "es2022", "--lib", "es2022,dom")
MODULES = ("--module", "esnext", "--moduleResolution", "bundler")

pytestmark = [pytest.mark.interop, pytest.mark.alone]  # builds in the checkout


def run(*command: str | Path, cwd: Path) -> str:
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built() -> None:
    run("npm", "run", "--silent", "build", cwd=PACKAGE)


@pytest.fixture(scope="module")
def program(built: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the checkout with the packed archive as its only link to it."""
    folder = tmp_path_factory.mktemp("program")
    pack = ("npm", "pack", "--silent", "--json", "--ignore-scripts", "--pack-destination")
    (packed,) = json.loads(run(*pack, folder, cwd=PACKAGE))
    modules = folder / "node_modules"
    modules.mkdir()
    with tarfile.open(folder / packed["filename"]) as archive:
        archive.extractall(modules, filter="data")
    (modules / "package").rename(modules / "sightline-js")
    for dependency in json.loads((modules / "sightline-js" / "package.json").read_text())["dependencies"]:
        target = modules / dependency
        target.parent.mkdir(exist_ok=True)
        target.symlink_to(ROOT / "node_modules" / dependency)
    (modules / "openapi-typescript-helpers").symlink_to(ROOT / "node_modules" / "openapi-typescript-helpers")
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def test_the_tests_of_the_package_pass(built: None):
    assert "# fail 0" in run("node", "--test", *(PACKAGE / "test").glob("*.test.mjs"), cwd=PACKAGE)


def test_a_program_elsewhere_compiles_in_strict_mode_against_the_archive(program: Path):
    copies = [shutil.copy(each, program) for each in PROGRAMS]
    run(ROOT / "node_modules" / ".bin" / "tsc", *STRICT, *MODULES, *copies, cwd=program)


def test_a_program_elsewhere_verifies_a_receipt_with_the_archive(program: Path):
    vectors = ROOT / "docs" / "vectors" / "receipts.json"
    (program / "check.mjs").write_text(
        'import { readFileSync } from "node:fs";\nimport { verifyReceipt } from "sightline-js";\n'
        "const { receipts } = JSON.parse(readFileSync(process.argv[2]));\n"
        "const { receipt, deployment, chain } = receipts[0];\n"
        "const { failures, skipped } = verifyReceipt(receipt, deployment, chain);\n"
        "console.log(failures.length + skipped.size);\n"
    )
    assert run("node", "check.mjs", vectors, cwd=program) == "0\n"
