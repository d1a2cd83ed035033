#!/usr/bin/env bash
# Installs openapi-python-client, a generator of clients from OpenAPI documents, into an environment of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh
kept .interop/generators scripts/interop_generators.sh
[ -e .interop/generators/done ] && exit
# Installed commands hold the path of their Python: the kept folder's own, which outlives this checkout, and not the link's.
store=$(readlink -f .interop/generators)
.venv/bin/python -m venv --clear "$store/venv"
"$store/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check openapi-python-client==0.29.1
touch "$store/done"
