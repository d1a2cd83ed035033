#!/usr/bin/env bash
# Builds what tests/nemesis needs beyond pip: the clock shim (tests/nemesis/clock_shim.c) into .interop/nemesis. Installs
# a C compiler with apt if there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
source=tests/nemesis/clock_shim.c
target=.interop/nemesis/clock_shim.so

[ "$target" -nt "$source" ] && exit 0
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
if ! command -v cc >/dev/null || ! echo '#include <stdlib.h>' | cc -E - >/dev/null 2>&1; then
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev
fi
mkdir -p "$(dirname "$target")"
cc -shared -fPIC -O2 -Wall -o "$target" "$source" -ldl
