#!/usr/bin/env bash
# Installs forge and the Solidity compiler (npm, pinned versions, checked hashes) into .interop/forge for the invariants of the contracts.
# forge would fetch a compiler from a host that is no package registry, so it gets one in its place: solc of npm, behind the options of a
# native solc. Needs node, npm and Linux on x86-64 with glibc 2.35 or newer.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/kept.sh

target=.interop/forge
kept "$target" scripts/interop_forge.sh
[ -x "$target/solc" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fetch PACKAGE VERSION FILE SHA256
fetch() {
  (cd "$work" && npm pack --silent "$1@$2" >/dev/null)
  tar -xzf "$work"/*.tgz -C "$work" "package/$3"
  echo "$4  $work/package/$3" | sha256sum --check --quiet
  mv "$work/package/$3" "$target/"
  rm "$work"/*.tgz
}

fetch @foundry-rs/forge-linux-amd64 1.7.1 bin/forge 4f77da0810de94325734855d0ad58d70640aa8a5b2a837608ddf8c26da34355c
fetch solc 0.8.37 soljson.js 221d7a667378b5068d913e75fe092507e061363cd1d23b64c49ae82febabad4c
chmod +x "$target/forge"
cat >"$work/solc" <<'END'
#!/usr/bin/env node
const compiler = require(require("path").join(__dirname, "soljson.js"));
if (process.argv.includes("--version")) {
  const version = compiler.cwrap("solidity_version", "string", [])();
  console.log(`solc, the solidity compiler commandline interface\nVersion: ${version}`);
} else {
  const compile = compiler.cwrap("solidity_compile", "string", ["string", "number", "number"]);
  require("fs").writeFileSync(1, compile(require("fs").readFileSync(0, "utf8"), 0, 0));
}
END
chmod +x "$work/solc"
mv "$work/solc" "$target/solc"
