#!/usr/bin/env bash
# Builds the manual that the server serves, for tests/console/test_manual.py.
set -euo pipefail
cd "$(dirname "$0")/.."
make --silent docs
