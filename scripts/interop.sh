#!/usr/bin/env bash
# Brings what the interop tests need beyond pip (browser, anvil, SpiceDB, engines), then runs them. Nothing is skipped:
# what cannot be brought fails.
set -euo pipefail
cd "$(dirname "$0")/.."
for bring in scripts/interop_*.sh; do
  echo "-- $bring"
  bash "$bring"
done
exec .venv/bin/python -m pytest -m interop "$@"
