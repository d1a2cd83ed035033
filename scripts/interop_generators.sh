#!/usr/bin/env bash
# Installs openapi-python-client, a generator of clients from OpenAPI documents, into an environment of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh
kept .interop/generators scripts/interop_generators.sh
[ -e .interop/generators/done ] && exit
.venv/bin/python -m venv --clear .interop/generators/venv
.interop/generators/venv/bin/python -m pip install --quiet --disable-pip-version-check openapi-python-client==0.29.1
touch .interop/generators/done
