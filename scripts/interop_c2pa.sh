#!/usr/bin/env bash
# Installs a C2PA implementation in TypeScript, by which the tests check signed frames and clips. Needs node and npm.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh
kept .interop/c2pa scripts/interop_c2pa.sh tests/client/interop/c2pa/package.json tests/client/interop/c2pa/verify.mjs
[ -e .interop/c2pa/done ] && exit
cp tests/client/interop/c2pa/package.json tests/client/interop/c2pa/verify.mjs .interop/c2pa/
cd .interop/c2pa
npm install --no-audit --no-fund --silent
touch done
