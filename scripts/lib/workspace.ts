import { existsSync, globSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { root } from "./command.ts";

type Dependencies = Readonly<Record<string, string>>;

export interface Manifest {
  readonly name: string;
  readonly version?: string;
  readonly private?: boolean;
  readonly type?: string;
  readonly license?: string;
  readonly description?: string;
  readonly sideEffects?: boolean;
  readonly exports?: Readonly<Record<string, unknown>>;
  readonly files?: readonly string[];
  readonly engines?: Readonly<Record<string, string>>;
  readonly publishConfig?: Readonly<Record<string, unknown>>;
  readonly dependencies?: Dependencies;
  readonly devDependencies?: Dependencies;
  readonly peerDependencies?: Dependencies;
  readonly optionalDependencies?: Dependencies;
}

export interface WorkspacePackage {
  /** Relative to the root of the repository. */
  readonly folder: string;
  /** `runtime-docker` */
  readonly shortName: string;
  readonly isPublished: boolean;
  readonly manifest: Manifest;
}

export function workspacePackages(): readonly WorkspacePackage[] {
  const folders = [...globSync("packages/*", { cwd: root }).toSorted(), "acceptance", "backends", "bench", "examples"];
  return folders
    .filter((folder) => existsSync(join(root, folder, "package.json")))
    .map((folder) => {
      const manifest = JSON.parse(readFileSync(join(root, folder, "package.json"), "utf8")) as Manifest;
      return { folder, shortName: basename(folder), isPublished: manifest.private !== true, manifest };
    });
}
