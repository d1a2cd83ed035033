#!/usr/bin/env bash
# Installs promtool from apt, which checks deploy/prometheus and the queries of the dashboard.
set -euo pipefail
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
command -v promtool >/dev/null && exit 0
as_root apt-get update -qq
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus
# The package starts a server; only its tool is needed.
as_root systemctl disable --now prometheus 2>/dev/null || true
