#!/usr/bin/env bash
# Builds real media servers for the interop tests from source into .interop/engines: MediaMTX (behind our adapter) and
# go2rtc (a peer of WHIP and WHEP). Sources are Go modules, pinned and checked; MediaMTX embeds a player from npm,
# also pinned and checked. Needs Go 1.24 or newer, and npm.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh

mediamtx=github.com/bluenviron/mediamtx@v1.12.3
mediamtx_sum=h1:NfHiMm6UQKQZEVhJhypl8Ccp+i8ZGt/IASqB2bSA7Gw=
go2rtc=github.com/AlexxIT/go2rtc@v1.9.9
go2rtc_sum=h1:iDjHFGler9RWonwsHDyJ5oBrbiz1+vlb8ImnaS5shs8=
hls=hls.js@1.6.2
hls_sha512=af1fa91134822440d3866fc90a6f02b9a75c002e35d1c5636f55d55c5343285bb295a6b21e4d7eb45c61923be730301faac247c595c3009dd4736779c50c9695
target=$PWD/.interop/engines
tries=4
pause_s=5

kept "$target" scripts/interop_engines.sh
[ -x "$target/mediamtx" ] && [ -x "$target/go2rtc" ] && exit 0
for tool in go npm; do
  command -v "$tool" >/dev/null || { echo "$tool is needed to build MediaMTX and go2rtc" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Mirrors of Go modules sometimes refuse a request, so each download is tried several times.
retried() {
  for ((try = 1; try <= tries; try++)); do
    "$@" && return
    [ "$try" = "$tries" ] || { echo "failed, trying again in $pause_s s: $*" >&2; sleep "$pause_s"; }
  done
  echo "cannot be brought: $*" >&2
  return 1
}

# sources MODULE@VERSION SUM FOLDER: makes a writable copy of a module.
sources() {
  download() (cd "$work" && go mod download -json "$1" >module.json)
  retried download "$1" || { cat "$work/module.json" >&2; return 1; }
  field() { sed -n "s/^\t\"$1\": \"\(.*\)\",\{0,1\}$/\1/p" "$work/module.json"; }
  [ "$(field Sum)" = "$2" ] || { echo "$1 is not what was pinned: $(field Sum)" >&2; return 1; }
  cp -r "$(field Dir)" "$3"
  chmod -R u+w "$3"
}

build() (cd "$work/$1" && CGO_ENABLED=0 go build -trimpath -o "$work/$1.built" .)

if [ ! -x "$target/mediamtx" ]; then
  sources "$mediamtx" "$mediamtx_sum" "$work/mediamtx"
  printf '%s' "${mediamtx##*@}" >"$work/mediamtx/internal/core/VERSION"
  packed() (cd "$work" && npm pack --silent "$hls" >/dev/null)
  retried packed
  echo "$hls_sha512  $work/${hls/@/-}.tgz" | sha512sum --check --quiet
  tar -xzOf "$work/${hls/@/-}.tgz" package/dist/hls.min.js >"$work/mediamtx/internal/servers/hls/hls.min.js"
  retried build mediamtx
  mv "$work/mediamtx.built" "$target/mediamtx"
fi
if [ ! -x "$target/go2rtc" ]; then
  sources "$go2rtc" "$go2rtc_sum" "$work/go2rtc"
  retried build go2rtc
  mv "$work/go2rtc.built" "$target/go2rtc"
fi
