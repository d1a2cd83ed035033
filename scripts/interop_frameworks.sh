#!/usr/bin/env bash
# Installs the frameworks of docs/guides/agents.md into environments of their own: they bring another version of MCP's library.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh
kept .interop/frameworks scripts/interop_frameworks.sh
[ -e .interop/frameworks/done ] && exit
# Installed commands hold the path of their Python: the kept folder's own, which outlives this checkout, and not the link's.
store=$(readlink -f .interop/frameworks)
.venv/bin/python -m venv --clear "$store/venv"
"$store/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check \
  openai-agents==0.24.0 langgraph==1.2.24 langchain==1.5.2 langchain-openai==1.7.4 langchain-mcp-adapters==0.3.2 \
  'pydantic-ai-slim[mcp,openai]==2.68.0' anthropic==2.12.0 mcp==1.30.0
# Pipecat, for examples/pipecat_input.py, with what the client needs; the client itself is read from the checkout.
.venv/bin/python -m venv --clear "$store/pipecat"
"$store/pipecat/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check \
  pipecat-ai==1.14.0 'packages/sightline-client[frames]'
touch "$store/done"
