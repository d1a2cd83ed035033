#!/usr/bin/env bash
# Installs the npm packages that build the console, for tests/console. Chromium comes with scripts/interop_video.sh.
# Needs node and npm.
set -euo pipefail
cd "$(dirname "$0")/../web"

npm ci --no-audit --no-fund --silent
