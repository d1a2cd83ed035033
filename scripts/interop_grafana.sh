#!/usr/bin/env bash
# Installs Grafana's schema of dashboards from npm, pinned, into .interop/grafana. TypeScript comes with scripts/interop_console.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh
kept .interop/grafana scripts/interop_grafana.sh
npm install --prefix .interop/grafana --no-save --no-audit --no-fund --silent --ignore-scripts @grafana/schema@13.2.3
