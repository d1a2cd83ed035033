#!/usr/bin/env bash
# Builds the judge of operator claims of tests/cluster (Go).
exec "$(dirname "$0")/build_go.sh" tests/cluster/porcupine .interop/porcupine/judge-claims
