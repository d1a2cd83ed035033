#!/usr/bin/env bash
# Installs what the tests check signed frames and clips with: a C2PA implementation in TypeScript, and ExifTool. Needs node, npm and apt.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh
if ! command -v exiftool >/dev/null 2>&1; then
  root=$([ "$(id -u)" = 0 ] || echo sudo)
  $root apt-get update -qq
  $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libimage-exiftool-perl
fi
kept .interop/c2pa scripts/interop_c2pa.sh tests/client/interop/c2pa/package.json tests/client/interop/c2pa/verify.mjs
[ -e .interop/c2pa/done ] && exit
cp tests/client/interop/c2pa/package.json tests/client/interop/c2pa/verify.mjs .interop/c2pa/
cd .interop/c2pa
npm install --no-audit --no-fund --silent
touch done
