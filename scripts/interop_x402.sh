#!/usr/bin/env bash
# Installs the official clients of x402, unmodified: Python (with an environment of its own, because it needs web3) and TypeScript.
# Needs node and npm.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh
kept .interop/x402 scripts/interop_x402.sh
[ -x .interop/x402/venv/bin/python ] || .venv/bin/python -m venv .interop/x402/venv
.interop/x402/venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check 'x402[evm,httpx,requests]==2.25.0'
npm install --prefix .interop/x402 --no-save --no-audit --no-fund --silent --ignore-scripts \
  @x402/fetch@2.27.0 @x402/evm@2.27.0 viem@2.57.20
