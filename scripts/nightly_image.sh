#!/usr/bin/env bash
# Builds the image of deploy/Containerfile into .interop/image without a registry: its base is made by debootstrap from the mirror that apt
# uses, with the Python of this Debian. Needs root, and installs buildah and debootstrap with apt. Takes 4 to 8 minutes on two cores, so
# that it is part of `make nightly` and not of `make interop`. tests/deploy/test_image.py starts the image.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$PWD/.interop/image
mkdir -p "$target"
in_store() { buildah --root "$target/store" --runroot "$target/run" --storage-driver overlay "$@"; }

if ! command -v buildah >/dev/null || ! command -v debootstrap >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends buildah debootstrap
fi

# Remove what an interrupted build has left, and the images before the last one.
in_store rm --all >/dev/null
in_store rmi --prune --force >/dev/null

base=$(sed -n 's/^FROM \([^ ]*\).*/\1/p' deploy/Containerfile | sort -u)
[ "$(wc -l <<<"$base")" = 1 ]
if ! in_store inspect --type image "$base" >/dev/null 2>&1; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$(. /etc/os-release && echo "$VERSION_CODENAME")" \
    "$work" "$mirror" >/dev/null
  rm -rf "$work"/var/cache/apt/* "$work"/var/lib/apt/lists/* "$work"/usr/share/{doc,man,locale}/*
  ln -s python3 "$work/usr/bin/python"
  container=$(in_store from scratch)
  in_store add --quiet "$container" "$work" / >/dev/null
  in_store commit --quiet --rm --format docker "$container" "$base" >/dev/null
fi

# The build uses the host's settings of pip and its certificates, if it has any.
mounts=()
for path in /etc/pip.conf /etc/ssl/certs /usr/share/ca-certificates /usr/local/share/ca-certificates; do
  [ -e "$path" ] && mounts+=(--volume "$path:$path:ro")
done
# --format docker: the OCI format has no health check.
in_store build --quiet --isolation chroot --format docker --pull-never "${mounts[@]}" \
  -f deploy/Containerfile -t sightline . >"$target/id"
