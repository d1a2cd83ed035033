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
  "$@" || return
  echo "-- $((SECONDS - started)) s: $*"
}

# Exit code 5: no test was selected, as with ARGS='-k name' when the name is in the other part.
tests() {
  .venv/bin/python -m pytest "$@" || [ $? = 5 ]
}

# Those that use apt one after the other, because it locks; the others beside them: a download waits more than it computes.
bring() {
  local script
  for script in "$@"; do
    timed bash "$script" || return 1
  done
}

mapfile -t with_apt < <(grep -l apt-get scripts/interop_*.sh)
mapfile -t others < <(grep -L apt-get scripts/interop_*.sh | grep -v console)
timed bash scripts/interop_console.sh # first: it fills node_modules, from which others build
bring "${with_apt[@]}" &
apt_lane=$!
is_whole=yes
bring "${others[@]}" || is_whole=no
wait "$apt_lane" || is_whole=no
[ "$is_whole" = yes ]
# `make nightly` runs those marked `nightly` too.
gate=" and not nightly"
[ -z "${SIGHTLINE_NIGHT:-}" ] || gate=""
# The files that have such tests: to import all the others takes each process half a minute on a slow machine.
mapfile -t files < <(grep -rlE "mark\.(interop|alone)" tests --include="*.py" | sed "s|/conftest.py$||")
for argument in "$@"; do
  [ ! -e "${argument%%::*}" ] || files=()
done
echo "-- SIGHTLINE_KILL_SEED=$SIGHTLINE_KILL_SEED"
timed tests -m "interop and not alone$gate" -n 3 --dist loadfile --no-loadscope-reorder --durations=15 "${files[@]}" "$@"
timed tests -m "interop and alone$gate" --durations=15 "${files[@]}" "$@"
