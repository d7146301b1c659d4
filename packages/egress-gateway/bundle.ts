// The gateway's program in one file: `node bundle.ts` writes it to dist/. From the sources it is made in memory, by the same recipe.

import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

export async function bundleProgram(): Promise<Uint8Array> {
  const { outputFiles } = await build({
    entryPoints: [join(import.meta.dirname, "src/program.ts")],
    absWorkingDir: import.meta.dirname,
    bundle: true,
    write: false,
    platform: "node",
    format: "esm",
    target: "node22",
    conditions: ["@breakwater/source"],
    // dns-packet is CommonJS and asks for Node's own modules.
    banner: { js: `import { createRequire } from "node:module"; const require = createRequire(import.meta.url);` },
    legalComments: "inline",
    logLevel: "error",
  });
  const [file] = outputFiles;
  if (file === undefined) throw new Error("esbuild made no file");
  return file.contents;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await writeFile(join(import.meta.dirname, "dist/gateway.mjs"), await bundleProgram());
}
