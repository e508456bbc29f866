// Build the dashboard into src/detent/serve/static/: the same sources give the same bytes, wherever they lie.
// Arguments: the folder to write to. The digest of the sources goes beside the built files (`tools/web.py` compares it).
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2];
if (!out) throw new Error("usage: node build.mjs FOLDER");

const hashed = (name, data) => {
  const [stem, kind] = name.split(".");
  return `${stem}-${createHash("sha256").update(data).digest("hex").slice(0, 10)}.${kind}`;
};

const built = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  loader: { ".svg": "text" },
  outdir: "out",
  write: false,
  logLevel: "warning",
});

await mkdir(out, { recursive: true });
for (const name of await readdir(out)) await rm(join(out, name));
const names = {};
for (const file of [...built.outputFiles, { path: "icon.svg", contents: await readFile(join(here, "src/icon.svg")) }]) {
  const name = basename(file.path);
  names[name] = hashed(name, file.contents);
  await writeFile(join(out, names[name]), file.contents);
}
const page = await readFile(join(here, "src/index.html"), "utf8");
await writeFile(join(out, "index.html"), page.replace(/\{\{(.+?)\}\}/g, (_, name) => `/static/${names[name]}`));

const licences = [];
for (const name of ["preact", "@preact/signals", "@preact/signals-core"]) {
  const text = await readFile(join(here, "node_modules", name, "LICENSE"), "utf8");
  licences.push(`${name}\n\n${text.trim()}\n`);
}
await writeFile(join(out, "licences.txt"), `The dashboard contains these packages.\n\n${licences.join("\n\n")}`);
