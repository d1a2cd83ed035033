#!/usr/bin/env bash
# Builds the pion client of tests/video/interop (Go) into .interop/video/pion.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$PWD/.interop/video/pion
mkdir -p "$(dirname "$target")"
cd tests/video/interop/pion
# Mirrors of Go modules sometimes refuse a request, so the download is tried several times.
for attempt in 1 2 3 4; do
  go mod download && break
  [ "$attempt" -lt 4 ]
  sleep 3
done
go build -o "$target" .
