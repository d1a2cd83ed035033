#!/usr/bin/env bash
# Installs PgBouncer from apt: the start must refuse it by name.
set -euo pipefail
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
command -v pgbouncer >/dev/null && exit 0
as_root apt-get update -qq
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends pgbouncer
# The package starts a server; only its program is needed.
as_root systemctl disable --now pgbouncer 2>/dev/null || true
