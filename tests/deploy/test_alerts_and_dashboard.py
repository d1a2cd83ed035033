"""Alert rules, runbooks and dashboard fit together and name metrics that a server really has."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import trio

from sightline.system.clock import SystemClock
from sightline.system.server_address_file import read_server_addresses
from sightline_client import ApiError
from tests.client.api import Api
from tests.e2e.server import PLACE, Server, a_tenant, until

ROOT: Final = Path(__file__).parents[2]
ALERTS: Final = ROOT / "deploy/prometheus/alerts.yml"
ALERTS_TEST: Final = ALERTS.with_name("alerts_test.yml")
DASHBOARD: Final = ROOT / "deploy/grafana/sightline.json"
RUNBOOKS: Final = ROOT / "docs/ops/runbooks.md"
RUN_PAGE: Final = ROOT / "docs/ops/run.md"
TYPES_OF_DASHBOARD: Final = """
import type { Dashboard, GraphFieldConfig } from "@grafana/schema";
import type { Options as Stat } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type { Options as TimeSeries } from
  "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";
// JSON has the values of Grafana's enums.
type Json<T> = T extends string ? `${T}` : T extends (infer E)[] ? Json<E>[]
  : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
"""
CONDITIONAL: Final = {"sightline_backup_timestamp_seconds", "sightline_tls_not_after_seconds"}
"""Metrics that a server has after a backup, and with a certificate: see tests/bootstrap/test_host_metrics.py."""
COUNTED: Final = ("_total", "_bucket", "_count", "_sum")
METRIC: Final = re.compile(r"\b(?:sightline|process)_[a-z_]+\b")


def alert_names() -> list[str]:
    return re.findall(r"- alert: (\w+)", ALERTS.read_text())


def expressions() -> list[str]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def metrics_of(server: Server) -> str:
    where = read_server_addresses(server.directory / "data")
    assert where is not None
    return httpx.get(f"{where.internal_url}/metrics").text


def families_of(text: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


def documented_metrics() -> set[str]:
    """The names in the table of docs/ops/run.md, with the prefix that it leaves out."""
    table = RUN_PAGE.read_text().partition("\n## Metrics\n")[2]
    cells = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    return {name if name.startswith("process_") else f"sightline_{name}" for name in re.findall(r"`(\w+)`", cells)}


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert headings == alert_names()
    anchors = re.findall(r"runbook: /manual/ops/runbooks\.html#(\w+)$", ALERTS.read_text(), re.MULTILINE)
    assert anchors == [name.lower() for name in alert_names()]


def test_every_alert_is_shown_to_fire_and_to_be_silent_within_its_limit() -> None:
    text = ALERTS_TEST.read_text()
    within, _, faults = text.partition("- name: what is just within its limit")[2].partition("- name: each fault")
    assert set(re.findall(r'alertname="(\w+)"', faults)) == set(alert_names())
    metrics = set(METRIC.findall(ALERTS.read_text())) | {"up"}
    assert set(re.findall(r"series: '(\w+)", within)) == metrics


async def test_rules_and_dashboard_name_metrics_of_a_real_server(running_server: Server) -> None:
    async def read() -> str:
        return metrics_of(running_server)

    # The figures that need a query are there after the first sample, and those of the books after their comparison.
    text = await until(read, lambda seen: "sightline_books_differences" in seen, "first sample and comparison")
    families = families_of(text)
    families |= {f"{name}_bucket" for name in families}
    used = {name for text in (ALERTS.read_text(), *expressions()) for name in METRIC.findall(text)}
    assert used - families == CONDITIONAL
    assert len(used) > 25


async def test_the_table_of_metrics_names_those_of_a_real_server_and_no_others(running_server: Server) -> None:
    async def read() -> set[str]:
        return families_of(metrics_of(running_server))

    documented = documented_metrics() - CONDITIONAL
    families = await until(read, lambda found: documented <= found, "every documented metric")
    assert families - documented == set()


async def test_metrics_have_units_help_and_no_unbounded_labels(running_server: Server) -> None:
    text = metrics_of(running_server)
    for name in re.findall(r"^# TYPE (\w+) counter", text, re.MULTILINE):
        assert name.endswith("_total"), name
    for name, help_text in re.findall(r"^# HELP (sightline_\w+) (.*)$", text, re.MULTILINE):
        assert help_text, name
    uuids = re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-", text)
    assert uuids == []
    assert 'sightline_build_info{build_sha="unknown",version="' in text


def test_panels_of_the_dashboard_do_not_overlap_and_have_own_ids() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert place["x"] + place["w"] <= 24


@pytest.mark.interop
def test_promtool_accepts_the_rules_and_each_alert_fires_on_its_fault(tmp_path: Path) -> None:
    recorded = [{"record": f"panel_{number}", "expr": text} for number, text in enumerate(expressions())]
    queries = tmp_path / "queries.yml"
    queries.write_text(json.dumps({"groups": [{"name": "panels", "rules": recorded}]}))
    for command in (
        ["promtool", "check", "rules", str(ALERTS), str(queries)],
        ["promtool", "test", "rules", str(ALERTS_TEST)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def recorded(before: str, after: str, now: float, changed: Mapping[str, str]) -> list[dict[str, str]]:
    """Make series of 30 minutes of two readings of /metrics.

    Counters rise by their difference in each minute; instants keep their distance to the clock.

    Args:
        changed: Values of the series whose text begins with a key.
    """
    first = dict(line.rsplit(" ", 1) for line in before.splitlines() if not line.startswith("#"))
    series = []
    for line in after.splitlines():
        if line.startswith("#"):
            continue
        name, _, value = line.rpartition(" ")
        base, _, labels = name.partition("{")
        if base.endswith("_timestamp_seconds"):
            values = f"{float(value) - now:.3f}+60x30"
        else:
            rise = float(value) - float(first.get(name, 0)) if base.endswith(COUNTED) else 0.0
            values = f"{float(value):.6f}+{rise:.6f}x30"
        for fault, instead in changed.items():
            values = instead if name.startswith(fault) else values
        series.append({"series": f'{base}{{job="sightline",instance="real",{labels or "}"}', "values": values})
    return [*series, {"series": 'up{job="sightline",instance="real"}', "values": changed.get("up", "1x30")}]


FAULTS: Final = {
    "SightlineDown": {"up": "0x30"},
    "SightlineNotReady": {'sightline_ready{check="watcher"': "0x30"},
    "SightlineDiskLow": {"sightline_disk_free_bytes": "1e9x30"},
    "SightlineActorsParked": {'sightline_actors_parked{kind="session"': "1x30"},
    "SightlineHeartbeatsWaiting": {"sightline_heartbeats_waiting": "2000x30"},
    "SightlineDatabaseWaits": {"sightline_database_units_waiting": "30x30"},
    "SightlineTwoPrimaries": {"sightline_database_primaries": "2x30"},
    "SightlineFiguresOld": {"sightline_sample_timestamp_seconds": "0x30"},
    "SightlineChainHalted": {"sightline_chain_halted": "1x30"},
    "SightlineChainNotRead": {'sightline_chain_round_timestamp_seconds{loop="watcher"': "0x30"},
    "SightlineSettlementsLate": {"sightline_settlement_oldest_age_seconds": "7200x30"},
    "SightlineUnknownPayments": {"sightline_unknown_payments": "1x30"},
    "SightlineRelayerGasLow": {"sightline_relayer_sessions_left": "999x30"},
    "SightlineFileDescriptors": {"process_open_fds": "1e9x30"},
}
"""A changed figure of a real server, for each alert that needs no traffic and no settlement."""


@pytest.fixture
def server(data_directory: Path) -> Iterator[Server]:
    made = Server(data_directory)
    yield made
    made.end()


@pytest.mark.interop
async def test_alerts_are_silent_on_the_metrics_of_a_real_server_and_fire_on_one_changed_figure(
    server: Server, tmp_path: Path
) -> None:
    """Its only traffic are dispatches that no operator can take, each answered with 503."""
    await server.start()

    async def read() -> str:
        return metrics_of(server)

    before = await until(read, lambda seen: "sightline_settlement_oldest_age_seconds" in seen, "first sample")
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    async with Api(server.url, key=consumer.key) as api:
        session = await api.post("/sessions", lat=PLACE[0], lng=PLACE[1])
        for _ in range(3):
            with pytest.raises(ApiError) as refused:
                await api.post(f"/sessions/{session['id']}/dispatch")
            assert refused.value.status == 503
    after, now = metrics_of(server), SystemClock().now_ms() / 1000

    def case(name: str, changed: Mapping[str, str], alerts: list[str]) -> dict[str, Any]:
        fired = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts]
        query = {"expr": 'max by (alertname) (ALERTS{alertstate="firing"})', "eval_time": "30m", "exp_samples": fired}
        series = recorded(before, after, now, changed)
        return {"name": name, "interval": "1m", "input_series": series, "promql_expr_test": [query]}

    cases = [case("as it was", {}, []), *(case(alert, changed, [alert]) for alert, changed in FAULTS.items())]
    written = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "recorded.yml").write_text(json.dumps(written))
    command = ["promtool", "test", "rules", str(tmp_path / "recorded.yml")]
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-4000:]


def problems_of_types(dashboard: dict[str, Any], directory: Path) -> str:
    """Check a dashboard, and the options of its panels, with the types that Grafana generates from its schema."""
    lines = [TYPES_OF_DASHBOARD, f"const dashboard: Json<Dashboard> = {json.dumps(dashboard)};"]
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            kind = {"stat": "Partial<Stat>", "timeseries": "TimeSeries"}[panel["type"]]
            lines.append(f"const options{panel['id']}: Json<{kind}> = {json.dumps(panel['options'])};")
            custom = panel["fieldConfig"]["defaults"].get("custom", {})
            lines.append(f"const custom{panel['id']}: Json<GraphFieldConfig> = {json.dumps(custom)};")
    (directory / "dashboard.ts").write_text("\n".join(lines))
    command = [str(ROOT / "node_modules/.bin/tsc"), "--noEmit", "--strict", "--skipLibCheck", "--module", "esnext"]
    command += ["--moduleResolution", "bundler", "--target", "es2022", "dashboard.ts"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False).stdout


@pytest.mark.interop
def test_the_dashboard_fits_the_schema_of_grafana(tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(ROOT / ".interop/grafana/node_modules")
    dashboard = json.loads(DASHBOARD.read_text())
    assert problems_of_types(dashboard, tmp_path) == ""
    dashboard["panels"][1]["options"]["tooltip"]["mode"] = "several"
    dashboard["refreshEvery"] = "30s"
    wrong = problems_of_types(dashboard, tmp_path)
    assert "refreshEvery" in wrong
    assert '"several"' in wrong
