#!/usr/bin/env bash
# Installs the command line of the MCP Inspector, a client of MCP written by others. Needs node and npm.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh
kept .interop/inspector scripts/interop_mcp.sh
npm install --prefix .interop/inspector --no-save --no-audit --no-fund --silent --ignore-scripts @modelcontextprotocol/inspector@2.12.0
