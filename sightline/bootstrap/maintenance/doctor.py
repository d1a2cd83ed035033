"""The `doctor` command: checks the host, the settings and the services that a server needs. Changes nothing."""

import os
from collections.abc import Callable, Sequence
from typing import Final

import trio

from sightline.bootstrap.maintenance.chain_checks import check_chain, print_findings
from sightline.bootstrap.maintenance.findings import HostFinding, Level, failed, warning
from sightline.bootstrap.maintenance.host_checks import (
    check_data_directory,
    check_open_files,
    check_ports,
    check_tls,
    check_udp,
)
from sightline.bootstrap.maintenance.service_checks import check_database, check_nats
from sightline.bootstrap.options.frame_signing import SIGNING_REMEDY, signing_problem
from sightline.config import Settings
from sightline.system.clock import SystemClock
from sightline.system.data_directory import OtherAccountError, require_own_account
from sightline.system.ids import SystemIds
from sightline.system.lock import is_locked

EXIT_FAILED: Final = 1


def run_doctor(settings: Settings, *, as_json: bool, say: Callable[[str], None]) -> int:
    """Print one line per check. Returns the exit code: 1 if a check failed, else 0."""
    findings = trio.run(examine, settings)
    print_findings(findings, as_json=as_json, say=say)
    return EXIT_FAILED if any(finding.level is Level.FAILED for finding in findings) else 0


async def examine(settings: Settings) -> Sequence[HostFinding]:
    """Run every check; of the directory of another account, none but that."""
    try:
        require_own_account(settings.data_dir.resolve())
    except OtherAccountError as error:
        whose, _, remedy = str(error).partition(". ")
        return [failed("account", whose, remedy.rstrip("."))]
    clock = SystemClock()
    is_running = is_locked(settings.data_dir)
    findings = [*check_data_directory(settings, is_running=is_running), check_ports(settings, is_running=is_running)]
    findings.append(check_open_files())
    if os.geteuid() == 0:
        findings.append(warning("account", "runs as root", "Run the server as an account of its own"))
    findings += check_tls(settings, clock)
    findings += await trio.to_thread.run_sync(lambda: list(check_udp(settings, is_running=is_running)))
    findings += [finding async for finding in check_database(settings, clock, is_running=is_running)]
    findings += [finding async for finding in check_chain(settings, clock, SystemIds())]
    findings += check_nats(settings)
    problem = signing_problem(settings)
    if problem is not None:
        findings.append(failed("frames", problem, f"Run {SIGNING_REMEDY}"))
    return findings
