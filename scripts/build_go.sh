#!/usr/bin/env bash
# build_go.sh SOURCE TARGET: builds the Go program in a directory, unless the target is newer. Needs Go 1.24 or newer.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$1
target=$PWD/$2

[ -x "$target" ] && [ -z "$(find "$source" -newer "$target" -type f)" ] && exit 0
command -v go >/dev/null || { echo "Go is needed to build $source: install Go 1.24 or newer (https://go.dev/dl/)" >&2; exit 1; }
mkdir -p "$(dirname "$target")"
cd "$source"
# Mirrors of Go modules sometimes refuse a request, so the download is tried several times.
for attempt in 1 2 3 4; do
  go mod download && break
  [ "$attempt" -lt 4 ]
  sleep 3
done
go build -o "$target" .
