#!/usr/bin/env bash
# Installs anvil and the creation code of Multicall3 (npm, pinned versions, checked hashes) into .interop/anvil for the chain's
# interop tests. Needs npm and Linux on x86-64 with glibc 2.35 or newer.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh

package=anvil-linux-amd64
version=1.7.1
sha256=10c1c727d6c1de973aeb160e59875b9a9a23464d6e74149ee8abb30b3500311b
viem_version=2.57.20
viem_sha256=90e6423032a55766385374827843990c3ff76d713562a7df467ebd557cf89bd0
target=.interop/anvil

kept "$target" scripts/interop_anvil.sh
[ -x "$target/anvil" ] && [ -f "$target/viem.js" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent "@foundry-rs/$package@$version" >/dev/null)
tar -xzf "$work/foundry-rs-$package-$version.tgz" -C "$work" package/bin/anvil
echo "$sha256  $work/package/bin/anvil" | sha256sum --check --quiet
chmod +x "$work/package/bin/anvil"
mv "$work/package/bin/anvil" "$target/anvil"
(cd "$work" && npm pack --silent "viem@$viem_version" >/dev/null)
tar -xzf "$work/viem-$viem_version.tgz" -C "$work" package/_esm/constants/contracts.js
echo "$viem_sha256  $work/package/_esm/constants/contracts.js" | sha256sum --check --quiet
mv "$work/package/_esm/constants/contracts.js" "$target/viem.js"
