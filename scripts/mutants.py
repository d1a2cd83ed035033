"""Plant bugs in the domain, the chain package and the ledgers, and list those that no test notices.

Usage: python scripts/mutants.py [--group NAME] [--seconds 300] [--seed 1]

Cosmic Ray makes the mutants, in a copy of the working tree. They are taken in random order until the time is up, so
that a run of any length is a fair sample; the seed repeats it.
"""

import argparse
import os
import random  # noqa: TID251  a sample of mutants, repeated by its seed
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TIMEOUT_S: Final = 120
# Removing a decorator such as @final or @dataclass(slots=True) changes nothing that a test could see.
EQUIVALENT: Final = "operator_name LIKE 'core/RemoveDecorator%'"
GROUPS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "session": (
        ("sightline/domain/session/machine.py", "sightline/domain/operator/machine.py"),
        "tests/domain/test_session_life.py tests/domain/test_operator_life.py tests/domain/test_machine_tables.py",
    ),
    "domain": (("sightline/domain",), "tests/domain"),
    "chain": (("sightline/chain/relayer", "sightline/chain/watcher"), "tests/chain -m 'not interop'"),
    "ledgers": (
        ("sightline/storage/memory/ledger.py", "sightline/storage/memory/ledger_outbox.py"),
        "tests/contract/test_ledger.py -k memory",
    ),
    "postgres": (
        ("sightline/storage/postgres/ledger.py", "sightline/storage/postgres/ledger_outbox.py"),
        "tests/contract/test_ledger.py -k postgres",
    ),
}

CONFIG: Final = """
[cosmic-ray]
module-path = {modules}
timeout = {timeout}.0
excluded-modules = []
test-command = "{python} -m pytest -x -q -p no:cacheprovider {tests}"
[cosmic-ray.distributor]
name = "local"
"""


def copy_tree(target: Path) -> None:
    """Copy the files that git knows."""
    git = shutil.which("git") or "git"
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout  # noqa: S603  own files
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def run_group(name: str, tree: Path, seconds: float, seed: int) -> bool:
    """Run one group's mutants for this long. Returns whether every one that was run was noticed."""
    modules, tests = GROUPS[name]
    config, session = tree / "mutants.toml", tree / f"{name}.sqlite"
    config.write_text(
        CONFIG.format(
            modules=str(list(modules)).replace("'", '"'), timeout=TIMEOUT_S, python=sys.executable, tests=tests
        )
    )
    cosmic_ray = [sys.executable, "-m", "cosmic_ray.cli"]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    for arguments in (("init", str(config), str(session)), ("baseline", str(config))):
        subprocess.run([*cosmic_ray, *arguments], cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  own arguments
    with closing(sqlite3.connect(session)) as database:
        for table in ("work_items", "mutation_specs"):
            database.execute(
                f"DELETE FROM {table} WHERE job_id IN (SELECT job_id FROM mutation_specs WHERE {EQUIVALENT})"  # noqa: S608
            )
        jobs = [job for (job,) in database.execute("SELECT job_id FROM mutation_specs ORDER BY job_id")]
        specs = database.execute("SELECT * FROM mutation_specs").fetchall()
        random.Random(seed).shuffle(jobs)  # noqa: S311  a sample
        place = {job: number for number, job in enumerate(jobs)}
        # Cosmic Ray runs the items in the order of their ids.
        database.execute("DELETE FROM work_items")
        database.execute("DELETE FROM mutation_specs")
        marks = ", ".join("?" * len(specs[0]))
        for *rest, job in sorted(specs, key=lambda row: place[row[-1]]):
            number = f"{place[job]:08}"
            database.execute("INSERT INTO work_items (job_id) VALUES (?)", (number,))
            database.execute(f"INSERT INTO mutation_specs VALUES ({marks})", (*rest, number))  # noqa: S608
        database.commit()
    run = [*cosmic_ray, "exec", str(config), str(session)]
    process = subprocess.Popen(run, cwd=tree, env=environment)  # noqa: S603  own arguments
    deadline = time.monotonic() + seconds
    try:
        process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
    return report(name, session, len(jobs))


def report(name: str, session: Path, total: int) -> bool:
    """Print the score of a group and every mutant that survived."""
    query = """
        SELECT m.module_path, m.operator_name, m.start_pos_row, r.test_outcome, r.diff
        FROM work_results r JOIN mutation_specs m USING (job_id) ORDER BY 1, 3
    """
    with closing(sqlite3.connect(session)) as database:
        rows = database.execute(query).fetchall()
    survived = [row for row in rows if row[3] == "SURVIVED"]
    killed = len(rows) - len(survived)
    share = f"{100 * killed / len(rows):.0f} %" if rows else "-"
    sys.stdout.write(f"\n{name}: {killed} of {len(rows)} noticed ({share}); {len(rows)} of {total} mutants run\n")
    for path, operator, line, _, diff in survived:
        changed = [text for text in diff.splitlines() if text[:1] in "+-" and text[:3] not in ("+++", "---")]
        sys.stdout.write(f"  {path}:{line} {operator.removeprefix('core/')}\n")
        sys.stdout.write("".join(f"    {text}\n" for text in changed))
    return not survived


def main() -> int:
    """Run the groups one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", choices=sorted(GROUPS), help="one group; default: all of them")
    parser.add_argument("--seconds", type=float, default=300, help="time for each group")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    is_clean = True
    for name in [options.group] if options.group else GROUPS:
        with tempfile.TemporaryDirectory(prefix="sightline-mutants-") as directory:
            copy_tree(Path(directory))
            is_clean &= run_group(name, Path(directory), options.seconds, options.seed)
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
