#!/usr/bin/env bash
# Installs what the interop tests need beyond pip (browser, anvil, SpiceDB, media servers), then runs them. No test is
# skipped: a part that cannot be installed fails the run.
set -euo pipefail
cd "$(dirname "$0")/.."
for bring in scripts/interop_*.sh; do
  echo "-- $bring"
  bash "$bring"
done
exec .venv/bin/python -m pytest -m interop "$@"
