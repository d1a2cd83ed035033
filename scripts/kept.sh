# Source it. What is built for the interop tests is kept outside of the checkout, so that a new checkout does not build it again.

# kept FOLDER INPUT...: makes FOLDER a link to a folder of the cache whose name has the hash of the input files.
kept() {
  local folder=$1 hash store
  shift
  hash=$(cat -- "$@" | sha256sum | cut -c1-16)
  store=${XDG_CACHE_HOME:-$HOME/.cache}/sightline-interop/${folder##*/}-$hash
  mkdir -p "$store" "$(dirname "$folder")"
  # A folder of an earlier version, not a link.
  [ -L "$folder" ] || rm -rf "$folder"
  ln -sfn "$store" "$folder"
}
