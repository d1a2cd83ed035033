#!/usr/bin/env bash
# Installs the SDKs of the models that examples/anthropic_agent.py and examples/openai_agent.py call.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m pip install --quiet --disable-pip-version-check anthropic==2.12.0 openai==3.54.0
