#!/bin/sh
# Installs what the video interop tests need beyond pip (Chromium and GStreamer from apt, browser clients from
# npm, go2rtc from the Go module proxy) and runs them. Usage: scripts/interop_video.sh [pytest arguments]
set -eu
cd "$(dirname "$0")/.."
build=build/interop
mkdir -p "$build"

need() { command -v "$1" >/dev/null 2>&1; }
if ! { need chromium || need google-chrome; } || ! need gst-launch-1.0 || ! need ffmpeg; then
  [ "$(id -u)" = 0 ] && sudo="" || sudo="sudo"
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends chromium ffmpeg \
    gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad \
    gstreamer1.0-plugins-ugly gstreamer1.0-nice python3-gi gir1.2-gstreamer-1.0 gir1.2-gst-plugins-bad-1.0
fi

cp tests/video/interop/package.json tests/video/interop/clients.js "$build/"
(cd "$build" && npm install --no-audit --no-fund --silent &&
  npx esbuild clients.js --bundle --format=iife --outfile=clients.bundle.js --log-level=warning)

if need go && [ ! -x "$build/go2rtc" ]; then
  GOBIN="$(pwd)/$build" go install github.com/AlexxIT/go2rtc@v1.9.10 || echo "go2rtc could not be built" >&2
fi

exec "${PYTHON:-.venv/bin/python}" -m pytest tests/video/interop -m interop "$@"
