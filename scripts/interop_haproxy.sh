#!/usr/bin/env bash
# Installs HAProxy from apt, which runs deploy/haproxy.cfg.
set -euo pipefail
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
command -v haproxy >/dev/null || [ -x /usr/sbin/haproxy ] && exit 0
as_root apt-get update -qq
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends haproxy
# The package starts a server; only its program is needed.
as_root systemctl disable --now haproxy 2>/dev/null || true
