#!/usr/bin/env bash
# Installs OpenCV, which examples/people_counter.py uses. Version 5 has no HOG detector.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m pip install --quiet --disable-pip-version-check 'opencv-python-headless<5'
