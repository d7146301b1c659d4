import { execFile } from "node:child_process";
import { link, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import type { RuntimeCapabilities } from "@breakwater/runtime-api";
import fc from "fast-check";
import { stringify } from "smol-toml";

import { loadTask } from "../src/load-task.ts";
import { planTrial } from "../src/plan-trial.ts";
import { isTasksetError, type TasksetProblem } from "../src/problems.ts";
import { parseTaskFile } from "../src/task-file.ts";

/** Every table and key of the format, so that a mutation can hit each. */
const WHOLE = {
  schema_version: "1.4",
  source: "set",
  multi_step_reward_strategy: "final",
  artifacts: ["/app/out", { source: "/app/a", destination: "a.txt", exclude: ["*.o"], service: "main" }],
  metadata: { difficulty: 3, tags: ["a"] },
  task: { name: "org/task", version: "1.0.0", description: "d", keywords: ["k"], authors: [{ name: "n", email: "e" }] },
  agent: {
    timeout_sec: 60.5,
    user: "agent",
    network_mode: "allowlist",
    allowed_hosts: ["example.com", "*.x.org", "192.0.2.0/24"],
  },
  environment: {
    build_timeout_sec: 60,
    docker_image: "agent:1",
    os: "linux",
    cpus: 0.5,
    memory_mb: 512,
    storage_mb: 1024,
    gpus: 0,
    gpu_types: ["h100"],
    mcp_servers: [
      { name: "m", transport: "http", url: "http://x", headers: { Authorization: "Bearer ${T}" } },
      { name: "s", transport: "stdio", command: "c", args: ["a"] },
    ],
    env: { A: "${HOME:-x}" },
    skills_dir: "/skills",
    healthcheck: {
      command: "true",
      interval_sec: 1,
      timeout_sec: 2,
      start_period_sec: 3,
      start_interval_sec: 1,
      retries: 2,
    },
    workdir: "/app",
    network_mode: "no-network",
    memory: "0.5G",
    storage: "1G",
  },
  verifier: {
    timeout_sec: "60",
    env: { B: "b" },
    user: 1000,
    environment_mode: "separate",
    environment: { docker_image: "v:1", allow_internet: false, healthcheck: { command: "true" } },
    collect: [{ command: "c", service: "main", timeout_sec: 5, user: "u" }],
    network_mode: "public",
  },
  solution: { env: { C: "c" } },
  steps: [
    {
      name: "one",
      agent: { timeout_sec: 5 },
      verifier: { timeout_sec: 5, collect: [{ command: "x" }] },
      min_reward: 0.5,
      artifacts: ["/app/b"],
    },
    { name: "two", min_reward: { reward: 1, style: 0.5 }, healthcheck: { command: "true" } },
  ],
} as const;

export const WHOLE_TEXT: string = stringify(WHOLE);

const FILES: Readonly<Record<string, string>> = {
  "task.toml": WHOLE_TEXT,
  "instruction.md": "<!-- canary -->\nDo it.\n",
  "environment/Dockerfile": "FROM x\n",
  "environment/data/a.txt": "a",
  "environment/docker-compose.yaml": "services:\n  main:\n    environment: {A: b}\n  db:\n    image: db:1\n",
  "tests/test.sh": "#!/bin/sh\n",
  "tests/.harborignore": "*.tmp\n",
  "tests/Dockerfile": "FROM x\n",
  "solution/solve.sh": "#!/bin/sh\n",
  "steps/one/instruction.md": "1\n",
  "steps/one/tests/test.sh": "#!/bin/sh\n",
  "steps/one/workdir/setup.sh": "true\n",
  "steps/two/instruction.md": "2\n",
  "steps/two/solution/solve.sh": "#!/bin/sh\n",
};

const CAPABILITIES: RuntimeCapabilities = {
  networkModes: ["public", "no-network", "allowlist"],
  networkChange: "cuts",
  allowlistEntries: ["name", "wildcard", "ipv4-cidr"],
  allowlistPorts: [80, 443],
  stop: "halted",
  firstProcess: "ours",
  freeze: "freezes",
  limits: ["cpus", "memory"],
  maxCpus: 4,
  maxMemoryMb: 8192,
  gpus: 0,
  users: "any",
  imagePin: "id",
  imageSources: ["reference", "build"],
  services: "full",
  operatingSystems: ["linux"],
  maxLifetimeMs: null,
};

type Path = readonly (string | number)[];

function pathsOf(value: unknown, path: Path = []): Path[] {
  if (typeof value !== "object" || value === null) return [path];
  return [
    path,
    ...Object.entries(value).flatMap(([key, inner]) =>
      pathsOf(inner, [...path, Array.isArray(value) ? Number(key) : key]),
    ),
  ];
}

const hostileText = fc.oneof(
  fc.string({ unit: "binary", maxLength: 40 }),
  fc.constantFrom(
    "",
    " ",
    "..",
    "/",
    "/tests",
    "/proc/1",
    "../..",
    "a\0b",
    "${X",
    "${X}",
    "NaN",
    "1e999",
    "-1",
    "C:\\x",
    "con",
    "__proto__",
    "constructor",
    "\u202e",
    "[",
    "é".repeat(300),
  ),
);
const hostileValue: fc.Arbitrary<unknown> = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    hostileText,
    fc.double(),
    fc.integer(),
    fc.boolean(),
    fc.date({ noInvalidDate: true }),
    fc.array(tie("value"), { maxLength: 3 }),
    fc.dictionary(
      fc.oneof(fc.constantFrom("name", "command", "timeout_sec", "environment", "source"), hostileText),
      tie("value"),
      { maxKeys: 3 },
    ),
  ),
})).value;

/** A value somewhere in the file becomes another one, or a key is added. */
const mutatedTable: fc.Arbitrary<string> = fc
  .array(
    fc.record({ path: fc.constantFrom(...pathsOf(WHOLE).slice(1)), value: hostileValue, key: fc.option(hostileText) }),
    { minLength: 1, maxLength: 4 },
  )
  .map((changes) => {
    const table = structuredClone(WHOLE) as unknown;
    for (const { path, value, key } of changes) {
      let at = table as Record<string | number, unknown>;
      for (const part of path.slice(0, -1)) {
        const next = at[part];
        if (typeof next !== "object" || next === null) break;
        at = next as Record<string | number, unknown>;
      }
      Object.defineProperty(at, key === null || Array.isArray(at) ? (path.at(-1) ?? "x") : key, {
        value,
        enumerable: true,
        configurable: true,
        writable: true,
      });
    }
    try {
      return stringify(table);
    } catch {
      // Not everything can be written as TOML, for instance lists with holes.
      return String(JSON.stringify(table));
    }
  });

/** Bytes of the file are cut out, doubled, or become others. */
const mutatedText: fc.Arbitrary<string> = fc
  .array(
    fc.record({
      at: fc.double({ min: 0, max: 1, noNaN: true }),
      length: fc.nat({ max: 60 }),
      text: fc.oneof(hostileText, fc.constantFrom("\n", '"', "'''", "[[", "]]", "=", "#", "{", "\r", "1_0", "inf")),
    }),
    { minLength: 1, maxLength: 6 },
  )
  .map((changes) => {
    let text = WHOLE_TEXT;
    for (const { at, length, text: other } of changes) {
      const from = Math.floor(at * text.length);
      text = text.slice(0, from) + other + text.slice(from + length);
    }
    return text;
  });

export const taskFileText: fc.Arbitrary<string> = fc.oneof(mutatedTable, mutatedText);

interface FolderChange {
  readonly path: string;
  readonly kind: "text" | "bytes" | "folder" | "gone" | "link" | "fifo";
  readonly text: string;
  readonly bytes: Uint8Array;
}
const folderChange: fc.Arbitrary<FolderChange> = fc.record({
  path: fc.oneof(
    fc.constantFrom(...Object.keys(FILES)),
    fc.constantFrom(
      "tests",
      "environment",
      "solution",
      "steps",
      "steps/one",
      "steps/one/tests",
      "tests/new",
      "tests/a b",
      "tests/.hidden/x",
      "environment/.dockerignore",
    ),
  ),
  kind: fc.constantFrom("text", "bytes", "folder", "gone", "link", "fifo"),
  text: fc.oneof(
    hostileText,
    fc.constantFrom(
      "/etc/passwd",
      "..",
      "../..",
      ".",
      "test.sh",
      "../tests",
      "../../../../etc",
      "loop",
      "services: {main: {image: x}}",
      "services:\n  db: &a {image: *a}\n",
    ),
  ),
  bytes: fc.uint8Array({ maxLength: 60 }),
});
export interface FolderMutation {
  readonly taskFile: string | null;
  readonly changes: readonly FolderChange[];
}
export const folderMutation: fc.Arbitrary<FolderMutation> = fc.record({
  taskFile: fc.option(taskFileText),
  changes: fc.array(folderChange, { maxLength: 4 }),
});

/** What one mutation came to. */
export type Verdict = "accepted" | "refused";

/** Reads a text; throws if it does something else than to read or to refuse it. */
export function readText(text: string): Verdict {
  const { file, problems, warnings } = parseTaskFile(text);
  if ((file === null) !== problems.length > 0) throw new Error("refused without a reason, or accepted with one");
  for (const problem of [...problems, ...warnings]) demandPlace(problem, "task.toml");
  return file === null ? "refused" : "accepted";
}

/** Loads and plans mutated folders, all below one temporary folder. */
export class FuzzFolders implements AsyncDisposable {
  readonly #root: string;
  #count = 0;

  private constructor(root: string) {
    this.#root = root;
  }

  static async create(): Promise<FuzzFolders> {
    const root = await mkdtemp(join(tmpdir(), "breakwater-fuzz-"));
    await promisify(execFile)("mkfifo", [join(root, "fifo")]);
    return new FuzzFolders(root);
  }

  async load({ taskFile, changes }: FolderMutation): Promise<Verdict> {
    const directory = join(this.#root, `task-${(this.#count += 1)}`);
    try {
      await this.#write(directory, taskFile, changes);
      const task = await loadTask(directory);
      planTrial(task, CAPABILITIES, { hostEnv: { T: "t" } });
      return "accepted";
    } catch (error) {
      if (!isTasksetError(error)) throw error;
      if (error.problems.length === 0) throw new Error("refused without a reason", { cause: error });
      for (const problem of error.problems) demandPlace(problem, null);
      return "refused";
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  }

  async #write(directory: string, taskFile: string | null, changes: readonly FolderChange[]): Promise<void> {
    for (const [path, content] of Object.entries({
      ...FILES,
      ...(taskFile === null ? {} : { "task.toml": taskFile }),
    })) {
      await mkdir(dirname(join(directory, path)), { recursive: true });
      await writeFile(join(directory, path), content);
    }
    for (const change of changes) {
      // One change may have taken the ground of the next.
      await this.#change(join(directory, change.path), change).catch((error: unknown) => {
        if ((error as NodeJS.ErrnoException).code === undefined) throw error;
      });
    }
  }

  async #change(path: string, { kind, text, bytes }: FolderChange): Promise<void> {
    await rm(path, { recursive: true, force: true });
    await mkdir(dirname(path), { recursive: true });
    if (kind === "text") await writeFile(path, text);
    else if (kind === "bytes") await writeFile(path, bytes);
    else if (kind === "folder") await mkdir(path);
    else if (kind === "link") await symlink(text.replaceAll("\0", "") || ".", path);
    else if (kind === "fifo") await link(join(this.#root, "fifo"), path);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#root, { recursive: true, force: true });
  }
}

/** What is wrong with the file as a whole has no key. */
const WHOLE_FILE = /^(?:is not TOML|is not UTF-8|is missing|cannot be read|is a|is no|has|is larger|leads)/;

/** A refusal, or a doubt, says where, what and what to do. */
function demandPlace({ file, key, message, advice }: TasksetProblem, expectedFile: string | null): void {
  const isPlaced = file !== "" && (expectedFile === null || file === expectedFile) && key !== "";
  const isPrecise = file !== "task.toml" || key !== null || WHOLE_FILE.test(message);
  if (isPlaced && isPrecise && message.trim() !== "" && advice.trim() !== "") return;
  throw new Error(`a refusal without place, reason or advice: ${JSON.stringify({ file, key, message, advice })}`);
}
