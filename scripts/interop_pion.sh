#!/usr/bin/env bash
# Builds the pion client of tests/video/interop (Go).
exec "$(dirname "$0")/build_go.sh" tests/video/interop/pion .interop/pion/pion
