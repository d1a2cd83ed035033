#!/usr/bin/env bash
# Installs what the interop tests need beyond pip (browser, anvil, SpiceDB, media servers), then runs them: in three processes those
# that may run beside others, then one by one those marked `alone`. No test is skipped: a part that cannot be installed fails the run.
# Rounds that repeat one claim draw from SIGHTLINE_KILL_SEED, by default the date.
set -euo pipefail
cd "$(dirname "$0")/.."
export SIGHTLINE_KILL_SEED=${SIGHTLINE_KILL_SEED:-$(date +%F)}

timed() {
  local started=$SECONDS
  echo "-- $*"
  "$@"
  echo "-- $((SECONDS - started)) s: $*"
}

# Exit code 5: no test was selected, as with ARGS='-k name' when the name is in the other part.
tests() {
  .venv/bin/python -m pytest "$@" || [ $? = 5 ]
}

for bring in scripts/interop_*.sh; do
  timed bash "$bring"
done
echo "-- SIGHTLINE_KILL_SEED=$SIGHTLINE_KILL_SEED"
timed tests -m "interop and not alone" -n 3 --dist loadfile --no-loadscope-reorder --durations=15 "$@"
timed tests -m "interop and alone" --durations=15 "$@"
