import assert from "node:assert/strict";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { RuntimeCapabilities, RuntimeDriver } from "@breakwater/runtime-api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { TaskFolders, type FakeFile } from "../test/write-task.ts";
import { loadTask } from "./load-task.ts";
import { isTasksetError } from "./problems.ts";
import { isRegradeError, type RegradeErrorCode } from "./regrade-error.ts";
import { regradeTrial, type RegradeOptions } from "./regrade.ts";

const folders = new TaskFolders();
let root = "";
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "breakwater-regrade-"));
});
afterAll(async () => {
  await folders.dispose();
  await rm(root, { recursive: true, force: true });
});

const CAPABILITIES: RuntimeCapabilities = {
  networkModes: ["public", "no-network"],
  networkChange: "none",
  allowlistEntries: [],
  allowlistPorts: [],
  stop: "halted",
  firstProcess: "ours",
  freeze: "none",
  limits: [],
  maxCpus: null,
  maxMemoryMb: null,
  gpus: 0,
  users: "any",
  imagePin: "id",
  imageSources: ["reference"],
  services: "none",
  operatingSystems: ["linux"],
  maxLifetimeMs: null,
};
/** What is asked of it first, after all preconditions, is an image. */
const REACHED = "the image was asked for";
const driver = {
  name: "fake",
  capabilities: CAPABILITIES,
  probe: async () => CAPABILITIES,
  prepareImage: async () => {
    throw new Error(REACHED);
  },
} as unknown as RuntimeDriver;

const SEPARATE = [
  'artifacts = ["/app/out", { source = "/app/a", destination = "a.txt" }]',
  'verifier.environment_mode = "separate"',
  'environment.docker_image = "agent:1"',
];
const STEPS = [...SEPARATE, "[[steps]]", 'name = "one"', "[[steps]]", 'name = "two"'];
const STEP_FILES = { "steps/one/instruction.md": "1", "steps/two/instruction.md": "2" };
const toml = (lines: readonly string[]): Record<string, FakeFile> => ({ "task.toml": `${lines.join("\n")}\n` });

type Entry = Readonly<Record<string, unknown>>;
const MANIFEST: readonly Entry[] = [
  {
    source: "/logs/artifacts",
    destination: "artifacts/logs/artifacts",
    type: "directory",
    status: "empty",
    service: null,
    exclude: [],
  },
  {
    source: "/app/out/",
    destination: "artifacts/app/out",
    type: "directory",
    status: "ok",
    service: "main",
    exclude: [],
  },
  { source: "/app/a", destination: "artifacts/a.txt", type: "file", status: "ok" },
];
const FILES = { "artifacts/app/out/x": "x", "artifacts/a.txt": "a", "agent/log": "log" };
const RESULT = {
  task_name: "task",
  trial_name: "task__1",
  trial_uri: "file:///x",
  task_id: { path: "task" },
  task_checksum: "",
  config: { task: { path: "task" } },
  agent_info: { name: "a", version: "1" },
};
const with_ = (index: number, change: Entry): readonly Entry[] =>
  MANIFEST.map((entry, at) => (at === index ? { ...entry, ...change } : entry));

let count = 0;
async function record(
  files: Readonly<Record<string, string>> = FILES,
  manifest: readonly Entry[] | string = MANIFEST,
  result: unknown = RESULT,
): Promise<string> {
  const directory = join(root, `trial-${(count += 1)}`);
  const all: Record<string, string> = {
    "result.json": typeof result === "string" ? result : JSON.stringify(result),
    ...files,
    ...(manifest === ""
      ? {}
      : { "artifacts/manifest.json": typeof manifest === "string" ? manifest : JSON.stringify(manifest) }),
  };
  for (const [path, content] of Object.entries(all)) {
    await mkdir(dirname(join(directory, path)), { recursive: true });
    await writeFile(join(directory, path), content);
  }
  return directory;
}

/** The code and what is wrong; or that everything was right. */
async function regrade(
  directory: string,
  task: Readonly<Record<string, FakeFile>> = toml(SEPARATE),
  options: Partial<RegradeOptions> = {},
): Promise<readonly [RegradeErrorCode | "accepted", ...string[]]> {
  const name = `${(count += 1)}/task`;
  const loaded = await loadTask(await folders.write(task, name));
  try {
    const { error } = await regradeTrial(directory, loaded, { driver, hostEnv: {}, ...options });
    expect(error?.message).toBe(REACHED);
    return ["accepted"];
  } catch (error) {
    if (!isRegradeError(error)) throw error;
    assert.equal(error.directory, directory);
    assert.ok(error.message.includes(error.problems[0] ?? "no problem"), error.message);
    return [error.code, ...error.problems];
  }
}

describe("a record is graded again", () => {
  test("where it has everything that is declared, with or without ids and modes", async () => {
    expect(await regrade(await record())).toEqual(["accepted"]);
  });

  test.each<[string, readonly Entry[]]>([
    ["exclude is not recorded (legacy)", with_(1, { exclude: null })],
    ["a second entry at the place is good: the last one counts", [{ ...MANIFEST[1], status: "failed" }, ...MANIFEST]],
    [
      "further entries are not declared",
      [...MANIFEST, { ...MANIFEST[2], source: "/x", destination: "artifacts/x", status: "failed" }],
    ],
    ["our own record says that there was nothing", with_(1, { status: "failed", breakwater: { status: "missing" } })],
  ])("%s", async (_, manifest) => {
    expect(await regrade(await record(FILES, manifest))).toEqual(["accepted"]);
  });

  test("with the entries that its caller had added", async () => {
    const result = { ...RESULT, config: { ...RESULT.config, artifacts: ["/extra"] } };
    const extra = { source: "/extra", destination: "artifacts/extra", type: "file", status: "ok" };
    expect(await regrade(await record(FILES, MANIFEST, result))).toEqual([
      "ERR_REGRADE_ARTIFACTS",
      expect.stringContaining("/extra: was never collected"),
    ]);
    expect(await regrade(await record({ ...FILES, "artifacts/extra": "e" }, [...MANIFEST, extra], result))).toEqual([
      "accepted",
    ]);
  });

  test("whatever only the agent's box would need", async () => {
    const agents = [
      'environment.env.A = "${NOT_SET}"',
      "environment.gpus = 4",
      'agent.network_mode = "allowlist"',
      'agent.allowed_hosts = ["x.y"]',
    ];
    const own = ['verifier.environment.docker_image = "v:1"'];
    expect(await regrade(await record(), toml([...SEPARATE, ...agents, ...own]))).toEqual(["accepted"]);
    // A fresh copy of the agent's environment needs its variables and its limits.
    await expect(regrade(await record(), toml([...SEPARATE, ...agents]))).rejects.toSatisfy((error) =>
      isTasksetError(error, "ERR_PLAN_REFUSED"),
    );
  });

  test("and is only read", async () => {
    const directory = await record();
    const before = await snapshot(directory);
    const output = join(root, "out");
    expect(await regrade(directory, toml(SEPARATE), { outputDir: output })).toEqual(["accepted"]);
    expect(await snapshot(directory)).toEqual(before);
    const [trial = ""] = await readdir(output);
    expect(JSON.parse(await readFile(join(output, trial, "result.json"), "utf8"))).toMatchObject({
      regradedFrom: { trial: "task__1", dir: directory, id: null, rewards: null },
      agent_info: RESULT.agent_info,
      config: { source_trial: { action: "regrade", type: "local", path: directory } },
    });
  });
});

describe("a record is refused", () => {
  test.each<[string, unknown]>([
    ["none", ""],
    ["no JSON", "{"],
    ["no result", {}],
    ["another version's", { ...RESULT, task_name: 3 }],
  ])("without a result that can be read: %s", async (_, result) => {
    const directory = await record(FILES, MANIFEST, result === "" ? "" : result);
    if (result === "") await rm(join(directory, "result.json"));
    expect(await regrade(directory)).toEqual(["ERR_REGRADE_RESULT", "it has no result.json that could be read"]);
  });

  test("for a task, or a step, that is graded in the agent's box", async () => {
    const shared = SEPARATE.filter((line) => !line.startsWith("verifier"));
    expect(await regrade(await record(), toml(shared))).toEqual([
      "ERR_REGRADE_SHARED",
      expect.stringMatching(/task of .* is graded in the agent's box.*environment_mode = "separate"/),
    ]);
    const mixed = { ...toml([...STEPS, 'verifier.environment_mode = "shared"']), ...STEP_FILES };
    expect(await regrade(await record(), mixed)).toEqual([
      "ERR_REGRADE_SHARED",
      expect.stringContaining("the step two"),
    ]);
  });

  test("for a task of another name", async () => {
    const named = toml([...SEPARATE, '[task]\nname = "org/other"']);
    expect(await regrade(await record(), named)).toEqual([
      "ERR_REGRADE_TASK",
      expect.stringContaining("it is a trial of task, and"),
    ]);
  });

  test("for other steps", async () => {
    const steps = (...names: string[]): unknown => ({
      ...RESULT,
      step_results: names.map((step_name) => ({ step_name })),
    });
    const multi = { ...toml(STEPS), ...STEP_FILES };
    const refused = async (result: unknown, task: Record<string, FakeFile> = multi): Promise<string> => {
      const [code, what] = await regrade(await record(FILES, MANIFEST, result), task);
      return `${code}: ${what}`;
    };
    expect(await refused(steps("one"), toml(SEPARATE))).toMatch(/ERR_REGRADE_STEPS: it has steps \(one\), .* has none/);
    expect(await refused(RESULT)).toMatch(/ERR_REGRADE_STEPS: it has no steps, .* has \(one, two\)/);
    // One that ended early, and one in another order.
    expect(await refused(steps("one"))).toMatch(/ERR_REGRADE_STEPS: the steps that were done \(one\) are not those/);
    expect(await refused(steps("two", "one"))).toMatch(/ERR_REGRADE_STEPS: the steps that were done \(two, one\)/);
    expect(await refused(steps("one", "two"))).toMatch(/ERR_REGRADE_MANIFEST: it has no steps\/one\/artifacts/);
    const each = Object.fromEntries(
      ["one", "two"].flatMap((step) => [
        ...Object.entries(FILES).map(([path, content]) => [`steps/${step}/${path}`, content]),
        [`steps/${step}/artifacts/manifest.json`, JSON.stringify(MANIFEST)],
      ]),
    ) as Record<string, string>;
    expect(await regrade(await record(each, "", steps("one", "two")), multi)).toEqual(["accepted"]);
    const without = await record(each, "", steps("one", "two"));
    await rm(join(without, "steps/two/artifacts/a.txt"));
    expect(await regrade(without, multi)).toEqual([
      "ERR_REGRADE_ARTIFACTS",
      expect.stringMatching(/^steps\/two\/\/app\/a: is recorded, but .* is not there any more/),
    ]);
  });

  test.each<[string, readonly Entry[] | string]>([
    ["none", ""],
    ["no JSON", "["],
    ["an object", "{}"],
    ["an entry without status", with_(1, { status: undefined })],
  ])("without a list of artifacts: %s", async (_, manifest) => {
    expect(await regrade(await record(FILES, manifest))).toEqual([
      "ERR_REGRADE_MANIFEST",
      expect.stringContaining("artifacts/manifest.json that could be read"),
    ]);
  });

  test.each<[string, readonly Entry[], RegExp]>([
    ["never collected", MANIFEST.slice(0, 2), /^\/app\/a: was never collected/],
    ["of another service", with_(2, { service: "db" }), /^\/app\/a: was never collected/],
    ["the convention folder, too", MANIFEST.slice(1), /^\/logs\/artifacts: was never collected/],
    [
      "at another place",
      with_(2, { destination: "artifacts/app/a" }),
      /recorded at artifacts\/app\/a, and declared to be at artifacts\/a.txt/,
    ],
    ["not collected", with_(1, { status: "failed" }), /^\/app\/out: could not be collected then/],
    [
      "left out by its limit",
      with_(1, { status: "failed", breakwater: { status: "refused" } }),
      /could not be collected then/,
    ],
    ["skipped", with_(1, { status: "skipped" }), /was skipped then/],
    [
      "the last entry of the place counts",
      [...MANIFEST, { ...MANIFEST[1], status: "failed" }],
      /could not be collected then/,
    ],
    [
      "with other patterns",
      with_(1, { exclude: ["*.o"] }),
      /was collected with exclude = \["\*\.o"\], and is declared with \[\] now/,
    ],
    ["a file that is empty like a folder", with_(2, { status: "empty" }), /which only a folder can be/],
    ["a folder that is a file now", with_(2, { type: "directory" }), /is recorded as a directory, and .* is none/],
  ])("for an artifact: %s", async (_, manifest, message) => {
    expect(await regrade(await record(FILES, manifest))).toEqual([
      "ERR_REGRADE_ARTIFACTS",
      expect.stringMatching(message),
    ]);
  });

  test("with every artifact that is not there, at once", async () => {
    expect(await regrade(await record({}))).toEqual([
      "ERR_REGRADE_ARTIFACTS",
      expect.stringMatching(/^\/app\/out: is recorded, but .* is not there any more/),
      expect.stringMatching(/^\/app\/a: is recorded, but .* is not there any more/),
    ]);
  });

  test("for links that lead out of it, and for what is no file", async () => {
    const out = async (make: (directory: string) => Promise<void>): Promise<string> => {
      const directory = await record();
      await make(directory);
      return (await regrade(directory)).join(": ");
    };
    await expect(out((directory) => symlink("x", join(directory, "artifacts/app/out/inside")))).resolves.toBe(
      "accepted",
    );
    expect(await out((directory) => symlink("/etc/passwd", join(directory, "artifacts/app/out/l")))).toMatch(
      /ERR_REGRADE_ARTIFACTS.*outside of/,
    );
    expect(await out((directory) => symlink("../../../agent", join(directory, "artifacts/app/out/l")))).toMatch(
      /ERR_REGRADE_ARTIFACTS.*outside of/,
    );
    expect(
      await out(async (directory) => {
        await rm(join(directory, "artifacts/a.txt"));
        await symlink("/etc/hostname", join(directory, "artifacts/a.txt"));
      }),
    ).toMatch(/is recorded as a file, and .* is none/);
    expect(
      await out(async (directory) => {
        const elsewhere = join(root, `elsewhere-${(count += 1)}`);
        await cp(join(directory, "artifacts/app"), elsewhere, { recursive: true });
        await rm(join(directory, "artifacts/app"), { recursive: true });
        await symlink(elsewhere, join(directory, "artifacts/app"));
      }),
    ).toMatch(/is behind a link that leads out of the record/);
  });

  test("where the new trial would be written into it", async () => {
    const directory = await record();
    expect(await regrade(directory, toml(SEPARATE), { outputDir: join(directory, "again") })).toEqual([
      "ERR_REGRADE_FOLDER",
      expect.stringContaining("choose another folder"),
    ]);
  });
});

async function snapshot(directory: string): Promise<Record<string, string>> {
  const files = (await readdir(directory, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
  const read = files.map(async (entry) => {
    const path = join(entry.parentPath, entry.name);
    return [path, await readFile(path, "utf8")] as const;
  });
  return Object.fromEntries(await Promise.all(read));
}
