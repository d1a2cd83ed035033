#!/usr/bin/env bash
# Installs the npm packages of the console and of packages/sightline-js, for tests/console and tests/typescript. Chromium comes with scripts/interop_video.sh.
# Needs node and npm.
set -euo pipefail
cd "$(dirname "$0")/.."

npm ci --no-audit --no-fund --silent
