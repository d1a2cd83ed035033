#!/usr/bin/env bash
# build_go.sh SOURCE TARGET: builds the Go program in a directory, unless one of the same sources is kept. Needs Go 1.24 or newer.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh
source=$1
target=$PWD/$2

mapfile -t inputs < <(find "$source" -type f | sort)
kept "$(dirname "$target")" "${inputs[@]}"
[ -x "$target" ] && exit 0
command -v go >/dev/null || { echo "Go is needed to build $source: install Go 1.24 or newer (https://go.dev/dl/)" >&2; exit 1; }
cd "$source"
# Mirrors of Go modules sometimes refuse a request, so the download is tried several times.
for attempt in 1 2 3 4; do
  go mod download && break
  [ "$attempt" -lt 4 ]
  sleep 3
done
go build -o "$target.new" .
mv "$target.new" "$target"
