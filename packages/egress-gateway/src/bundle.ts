import { readFile } from "node:fs/promises";

let bundle: Promise<Uint8Array> | undefined;

/** The gateway's program, one file with all that it needs. */
export function gatewayBundle(): Promise<Uint8Array> {
  bundle ??= import.meta.url.endsWith(".ts") ? bundleSources() : readFile(new URL("gateway.mjs", import.meta.url));
  return bundle;
}

/** In the repository nothing has to be built: what is tried is what the sources say now. */
async function bundleSources(): Promise<Uint8Array> {
  const builder = new URL("../bundle.ts", import.meta.url).href;
  const module = (await import(builder)) as { readonly bundleProgram: () => Promise<Uint8Array> };
  return module.bundleProgram();
}
