#!/usr/bin/env bash
# Installs what tests/video/interop needs beyond pip: Chromium (also without a window), Firefox, GStreamer with its Python bindings, ffmpeg, coturn, tayga and the
# tools for network namespaces from apt, the Eyevinn browser clients, werift and a bundler from npm. scripts/interop.sh runs the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh
folder=.interop/video
kept "$folder" tests/video/interop/package.json scripts/interop_video.sh

have() { command -v "$1" >/dev/null 2>&1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

bindings='import gi; gi.require_version("GstWebRTC", "1.0"); gi.require_version("GstSdp", "1.0")'
if ! have chromium || ! have chromium-headless-shell || ! have ffmpeg || ! have gst-launch-1.0 || ! have ip || ! have nft ||
  ! have turnserver || ! have tayga || ! have firefox-esr || ! /usr/bin/python3 -c "$bindings" 2>/dev/null; then
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-headless-shell coturn ffmpeg \
    firefox-esr iproute2 nftables tayga \
    gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad \
    gstreamer1.0-plugins-ugly gstreamer1.0-nice python3-gi gir1.2-gstreamer-1.0 gir1.2-gst-plugins-bad-1.0
fi

root=$PWD
cp tests/video/interop/package.json tests/video/interop/clients.js tests/video/interop/werift.mjs "$folder/"
cd "$folder"
npm install --no-audit --no-fund --silent
NODE_PATH=$PWD/node_modules npx esbuild clients.js --bundle --format=iife --outfile=clients.bundle.js \
  --alias:sightline-js="$root/packages/sightline-js/src" --log-level=warning
