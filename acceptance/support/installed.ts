import { execFile } from "node:child_process";
import { globSync } from "node:fs";
import { mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";

const root: string = join(import.meta.dirname, "../..");
const TIMEOUT_MS = 40 * 60_000;

export interface Manifest {
  readonly name: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

/** A package that would be published. */
export interface Packed {
  readonly name: string;
  readonly manifest: Manifest;
  /** Its file. */
  readonly tarball: string;
}

export interface Ran {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program to its end. A non-zero exit is a result. */
export async function run(argv: readonly [string, ...string[]], cwd: string): Promise<Ran> {
  try {
    const env = { ...process.env, NODE_OPTIONS: "" };
    const options = { cwd, env, timeout: TIMEOUT_MS, maxBuffer: 64 * 1024 * 1024 };
    return { exitCode: 0, ...(await promisify(execFile)(argv[0], argv.slice(1), options)) };
  } catch (error) {
    const { code, stdout, stderr } = error as {
      readonly code?: unknown;
      readonly stdout?: string;
      readonly stderr?: string;
    };
    if (typeof code !== "number") throw error;
    return { exitCode: code, stdout: stdout ?? "", stderr: stderr ?? "" };
  }
}

/** Builds and packs all packages. */
export async function packAll(folder: string): Promise<readonly Packed[]> {
  const { exitCode, stderr } = await run([process.execPath, "scripts/pack.ts", folder], root);
  if (exitCode !== 0) throw new Error(`packing failed\n${stderr}`);
  const tarballs = (await readdir(folder)).map((name) => join(folder, name));
  return Promise.all(
    globSync("packages/*/package.json", { cwd: root }).map(async (file) => {
      const manifest = JSON.parse(await readFile(join(root, file), "utf8")) as Manifest;
      const prefix = `${manifest.name.replace("@", "").replace("/", "-")}-`;
      const tarball = tarballs.find(
        (each) => basename(each).startsWith(prefix) && /^\d/.test(basename(each).slice(prefix.length)),
      );
      if (tarball === undefined) throw new Error(`${manifest.name} was not packed`);
      return { name: manifest.name, manifest, tarball };
    }),
  );
}

/** A project of somebody else, with some of the packages and nothing else in it. */
export class Project {
  readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** Makes the folder and installs what is named, with those of ours that they need. */
  static async create(folder: string, packed: readonly Packed[], names: readonly string[]): Promise<Project> {
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, "package.json"), JSON.stringify({ name: "project", private: true, type: "module" }));
    const project = new Project(folder);
    await project.install(...closure(packed, names).map(({ tarball }) => tarball));
    return project;
  }

  /** Peers are the project's own business. */
  async install(...what: readonly string[]): Promise<void> {
    const npm = [
      "npm",
      "install",
      "--no-audit",
      "--no-fund",
      "--omit=peer",
      "--prefer-offline",
      "--loglevel=error",
      ...what,
    ] as const;
    const { exitCode, stderr } = await run([...npm], this.folder);
    if (exitCode !== 0) throw new Error(`npm install ${what.join(" ")} failed\n${stderr}`);
  }

  /** Names of all packages that were installed. */
  packages(): readonly string[] {
    return globSync("**/node_modules/{*,@*/*}/package.json", { cwd: this.folder })
      .map((file) => /.*node_modules\/(.*)\/package\.json$/.exec(file)?.[1] ?? "")
      .filter((name) => name !== "" && !(name.startsWith("@") && !name.includes("/")));
  }

  /** Bytes of all installed files. */
  async size(): Promise<number> {
    const files = globSync("node_modules/**", { cwd: this.folder, withFileTypes: true }).filter((entry) =>
      entry.isFile(),
    );
    const sizes = await Promise.all(files.map(async (entry) => (await stat(join(entry.parentPath, entry.name))).size));
    return sizes.reduce((sum, size) => sum + size, 0);
  }
}

/** The packages and those of ours that they depend on. */
function closure(packed: readonly Packed[], names: readonly string[]): readonly Packed[] {
  const found = new Set<Packed>();
  const add = (name: string): void => {
    const one = packed.find((each) => each.name === name);
    if (one === undefined || found.has(one)) return;
    found.add(one);
    Object.keys(one.manifest.dependencies ?? {}).forEach(add);
  };
  names.forEach(add);
  return [...found];
}
