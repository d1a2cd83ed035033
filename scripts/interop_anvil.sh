#!/usr/bin/env bash
# Installs anvil (npm, pinned version, checked hash) into .interop/anvil for the chain's interop tests. Needs npm and Linux on x86-64
# with glibc 2.35 or newer.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh

package=anvil-linux-amd64
version=1.7.1
sha256=10c1c727d6c1de973aeb160e59875b9a9a23464d6e74149ee8abb30b3500311b
target=.interop/anvil

kept "$target" scripts/interop_anvil.sh
[ -x "$target/anvil" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent "@foundry-rs/$package@$version" >/dev/null)
tar -xzf "$work/foundry-rs-$package-$version.tgz" -C "$work" package/bin/anvil
echo "$sha256  $work/package/bin/anvil" | sha256sum --check --quiet
chmod +x "$work/package/bin/anvil"
mv "$work/package/bin/anvil" "$target/anvil"
