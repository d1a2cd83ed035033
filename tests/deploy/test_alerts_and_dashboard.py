"""Alert rules, runbooks and dashboard fit together and name metrics that a server really has."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from sightline.system.server_address_file import read_server_addresses
from tests.e2e.server import Server, until

ROOT: Final = Path(__file__).parents[2]
ALERTS: Final = ROOT / "deploy/prometheus/alerts.yml"
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
    anchors = re.findall(r"runbook: docs/ops/runbooks.md#(\w+)", ALERTS.read_text())
    assert anchors == [name.lower() for name in alert_names()]


async def test_rules_and_dashboard_name_metrics_of_a_real_server(running_server: Server) -> None:
    async def read() -> str:
        return metrics_of(running_server)

    # The figures that need a query are there after the first sample.
    text = await until(read, lambda seen: "sightline_settlement_oldest_age_seconds" in seen, "first sample")
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
        ["promtool", "test", "rules", str(ALERTS.with_name("alerts_test.yml"))],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


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
