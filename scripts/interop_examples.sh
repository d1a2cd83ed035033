#!/usr/bin/env bash
# Installs what examples/ need beyond the client: OpenCV, supervision and the SDKs of the models.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r examples/requirements.txt
