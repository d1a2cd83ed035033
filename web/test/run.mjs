// Runs the unit tests of web/src with node's test runner. esbuild makes a bundle of each, as it does for the browser.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import "../data.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "sightline-units-"));
try {
  await build({
    absWorkingDir: here,
    bundle: true,
    conditions: ["source"],
    entryPoints: readdirSync(here).filter((name) => name.endsWith(".test.ts")),
    external: ["node:*"],
    format: "esm",
    inject: [join(here, "browser.ts")],
    jsx: "automatic",
    jsxImportSource: "preact",
    loader: { ".gen.json": "file", ".gen.txt": "text", ".svg": "file" },
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    platform: "node",
    target: "es2022",
  });
  const done = spawnSync(process.execPath, ["--test", ...readdirSync(folder).filter((name) => name.endsWith(".mjs")).map((name) => join(folder, name))], { stdio: "inherit" });
  process.exitCode = done.status ?? 1;
} finally {
  rmSync(folder, { recursive: true });
}
