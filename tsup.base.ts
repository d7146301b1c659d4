/** What our tsup configurations set. tsup's own declarations do not pass our strict check of libraries. */
export interface PackageBuild {
  readonly entry: Readonly<Record<string, string>>;
  readonly format: "esm";
  readonly target: "node22";
  readonly platform: "node";
  readonly dts: false;
  readonly sourcemap: true;
  readonly clean: true;
}

/** JavaScript of one package. The declarations come from `tsc -p tsconfig.build.json`: TypeScript 7 has no API for tsup. */
export function packageBuild(entry: Readonly<Record<string, string>> = { index: "src/index.ts" }): PackageBuild {
  return { entry, format: "esm", target: "node22", platform: "node", dts: false, sourcemap: true, clean: true };
}
