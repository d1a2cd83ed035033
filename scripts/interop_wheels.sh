#!/usr/bin/env bash
# Installs uv, which creates the environments of tests/client/interop/test_wheels.py.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
