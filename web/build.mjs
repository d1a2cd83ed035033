// Builds the console into ../sightline/web: types from the OpenAPI document, type check, bundle, gzip.
// The output depends on the sources, packages/sightline-js and package-lock.json alone, so two builds have the same bytes.
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { gzipSync } from "fflate";
import "../packages/sightline-js/generate.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const target = process.argv[2] ?? join(here, "..", "sightline", "web");

const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
execFileSync(process.execPath, [tsc, "--noEmit", "-p", here], { stdio: "inherit" });

const built = await build({
  absWorkingDir: here,
  entryPoints: ["src/main.tsx"],
  assetNames: "[name]-[hash]",
  bundle: true,
  chunkNames: "[name]-[hash]",
  conditions: ["source"],
  entryNames: "[name]-[hash]",
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  loader: { ".svg": "file" },
  metafile: true,
  minify: true,
  outdir: "/out",
  publicPath: "/console",
  splitting: true,
  target: "es2022",
  write: false,
});

const outputs = Object.entries(built.metafile.outputs).map(([path, output]) => ({ name: basename(path), ...output }));
const entry = outputs.find((each) => each.entryPoint === "src/main.tsx");
const preloads = entry.imports.filter((each) => each.kind === "import-statement").map((each) => basename(each.path));
const icon = outputs.find((each) => each.name.endsWith(".svg"));
const page = readFileSync(join(here, "src", "index.html"), "utf8")
  .replace("{{icon}}", icon.name)
  .replace("{{style}}", basename(entry.cssBundle))
  .replace("{{preloads}}", preloads.map((name) => `<link rel="modulepreload" href="${name}">`).join(""))
  .replace("{{script}}", entry.name);

mkdirSync(target, { recursive: true });
for (const name of readdirSync(target)) if (name.endsWith(".gz")) rmSync(join(target, name));
const write = (name, bytes) => writeFileSync(join(target, `${name}.gz`), gzipSync(bytes, { level: 9, mtime: 0 }));
write("index.html", new TextEncoder().encode(page));
for (const file of built.outputFiles) write(basename(file.path), file.contents);
