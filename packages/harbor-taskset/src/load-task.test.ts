import { execFile } from "node:child_process";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, describe, expect, test } from "vitest";

import { TaskFolders, type FakeFile } from "../test/write-task.ts";
import { loadTask, loadTasks } from "./load-task.ts";
import { isTasksetError, type TasksetError } from "./problems.ts";

const folders = new TaskFolders();
afterAll(() => folders.dispose());

async function failure(directory: string): Promise<TasksetError> {
  const error: unknown = await loadTask(directory).then(
    () => "it loaded",
    (reason: unknown) => reason,
  );
  if (!isTasksetError(error)) throw new Error(`expected a TasksetError, got ${String(error)}`, { cause: error });
  return error;
}

const filesOf = (error: TasksetError): string[] => error.problems.map(({ file }) => file);

test("a small task loads", async () => {
  const directory = await folders.write({
    "instruction.md": "<!-- canary 1234 -->\n\nDo it.\n",
    "solution/solve.sh": "#!/bin/sh\n",
    "tests/deep/data.txt": "12345",
    "environment/data.txt": "x",
  });
  const task = await loadTask(directory, { extraInstructions: ["Be quick."] });
  expect(task).toMatchObject({ directory, instruction: "Do it.\n\nBe quick.", warnings: [] });
  expect(task.name).toBe(task.shortName);
  expect(task.files.environment).toMatchObject({ exists: true, hasDockerfile: false, hasComposeFile: false });
  expect(task.files.environmentFiles?.entries.map(({ path }) => path)).toEqual(["data.txt"]);
  expect(task.files.solutionFiles?.entries.map(({ path }) => path)).toEqual(["solve.sh"]);
  expect(task.files.testFiles?.entries).toEqual([
    { kind: "directory", path: "deep", mode: expect.any(Number) as number },
    { kind: "file", path: "deep/data.txt", mode: 0o644, bytes: 5, hostPath: join(directory, "tests/deep/data.txt") },
    { kind: "file", path: "test.sh", mode: 0o755, bytes: 45, hostPath: join(directory, "tests/test.sh") },
  ]);
});

test("[task].name is the name, its second half the short one", async () => {
  const task = await loadTask(
    await folders.write({ "task.toml": '[task]\nname = "org/it"\n[environment]\ndocker_image = "a"\n' }),
  );
  expect(task).toMatchObject({ name: "org/it", shortName: "it", lines: { "task.name": 2 } });
});

test("files of an environment that is built are not listed", async () => {
  const task = await loadTask(await folders.write({ "environment/Dockerfile": "FROM x", "environment/data": "" }));
  expect(task.files.environmentFiles).toBeNull();
  expect(task.files.environment.hasDockerfile).toBe(true);
});

describe(".harborignore", () => {
  test("leaves out what it lists, of tests/ and solution/ only, and never travels itself", async () => {
    const task = await loadTask(
      await folders.write({
        "tests/.harborignore": "*.log\n/cache/\n# a comment\n!keep.log\n",
        "tests/a.log": "",
        "tests/keep.log": "",
        "tests/cache/x": "",
        "tests/deep/cache/y": "",
        "tests/deep/b.log": "",
        "tests/deep/.harborignore": "!b.log\ncache/\n",
        "solution/.harborignore": "notes\n",
        "solution/notes": "",
        "solution/solve.sh": "",
        "environment/.harborignore": "*\n",
        "environment/data": "",
      }),
    );
    const paths = (folder: { readonly entries: readonly { readonly path: string }[] } | null): readonly string[] =>
      folder?.entries.map(({ path }) => path) ?? [];
    expect(paths(task.files.testFiles)).toEqual(["deep", "deep/b.log", "keep.log", "test.sh"]);
    expect(paths(task.files.solutionFiles)).toEqual(["solve.sh"]);
    expect(paths(task.files.environmentFiles)).toEqual([".harborignore", "data"]);
  });

  test("may not leave out a script that is needed; what it leaves out may lead anywhere", async () => {
    const left = await failure(
      await folders.write({
        "tests/.harborignore": "*.sh\n",
        "solution/.harborignore": "solve.sh\n",
        "solution/solve.sh": "",
      }),
    );
    expect(filesOf(left)).toEqual(["tests/test.sh", "solution/solve.sh"]);
    const outside = { "tests/out": { link: "/etc/passwd" } };
    expect(filesOf(await failure(await folders.write(outside)))).toEqual(["tests/out"]);
    await loadTask(await folders.write({ ...outside, "tests/.harborignore": "out\n" }));
  });
});

describe("steps", () => {
  const TOML = '[environment]\ndocker_image = "a"\n[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n';
  const STEPS = {
    "task.toml": TOML,
    "instruction.md": null,
    "steps/one/instruction.md": "# canary\nFirst.\n",
    "steps/two/instruction.md": "Then.\n",
  };

  test("each has its instruction and its folders; the task needs none", async () => {
    const directory = await folders.write({
      ...STEPS,
      "steps/one/workdir/setup.sh": "true\n",
      "steps/one/tests/Dockerfile": "FROM x\n",
      "steps/two/solution/solve.sh": "true\n",
      "steps/two/tests/test.sh": "true\n",
    });
    const { instruction, steps } = await loadTask(directory, { extraInstructions: ["Be quick."] });
    expect(instruction).toBe("");
    expect(steps).toMatchObject([
      {
        instruction: "First.\n\nBe quick.",
        files: {
          tests: { hasDockerfile: true },
          workdirFiles: { entries: [{ path: "setup.sh" }] },
          solutionFiles: null,
        },
      },
      {
        instruction: "Then.\n\nBe quick.",
        files: {
          tests: { hasDockerfile: false },
          solutionFiles: { entries: [{ path: "solve.sh" }] },
          workdirFiles: null,
        },
      },
    ]);
  });

  test("what is missing, leads out, or is of another kind than what it is put over", async () => {
    const error = await failure(
      await folders.write({
        ...STEPS,
        "steps/one/instruction.md": null,
        "steps/one/workdir": { link: "/etc" },
        "tests/data": "a file",
        "steps/two/tests/data/file": "in a folder",
      }),
    );
    expect(filesOf(error).sort()).toEqual(["steps/one/instruction.md", "steps/one/workdir", "steps/two/tests/data"]);
  });
});

describe("not a task", () => {
  test("a folder that does not exist, a file, a folder without task.toml", async () => {
    const directory = await folders.write({ "task.toml": null });
    for (const path of [join(directory, "nowhere"), join(directory, "instruction.md"), directory]) {
      const error = await failure(path);
      expect(error.code).toBe("ERR_TASK_NOT_FOUND");
      await expect(loadTasks(path)).rejects.toMatchObject({ code: "ERR_TASK_NOT_FOUND" });
    }
  });
});

describe("not a valid task", () => {
  test.each<[string, Record<string, FakeFile>, string[]]>([
    ["no instruction", { "instruction.md": null }, ["instruction.md"]],
    ["instruction is no UTF-8", { "instruction.md": new Uint8Array([0xff, 0xfe]) }, ["instruction.md"]],
    ["instruction of 11 MiB", { "instruction.md": "x".repeat(11 * 1024 ** 2) }, ["instruction.md"]],
    ["task.toml of 2 MiB", { "task.toml": `#${"x".repeat(2 * 1024 ** 2)}` }, ["task.toml"]],
    ["task.toml is no UTF-8", { "task.toml": new Uint8Array([0x61, 0xff]) }, ["task.toml"]],
    ["task.toml is no TOML", { "task.toml": "x = \n" }, ["task.toml"]],
    ["task.toml is a folder", { "task.toml": null, "task.toml/x": "" }, ["task.toml"]],
    ["instruction is a folder", { "instruction.md": null, "instruction.md/x": "" }, ["instruction.md"]],
    ["no image at all", { "task.toml": "" }, ["task.toml"]],
    ["an environment without Dockerfile", { "task.toml": "", "environment/x": "" }, ["environment/Dockerfile"]],
    ["compose file", { "environment/docker-compose.yaml": "services: [" }, ["environment/docker-compose.yaml"]],
    ["tests is a file", { "tests/test.sh": null, tests: "" }, ["tests"]],
    ["a link out of the task", { "tests/leak": { link: "/etc/hostname" } }, ["tests/leak"]],
    ["a link out of the task by dots", { "tests/leak": { link: "../../../../../../etc/hostname" } }, ["tests/leak"]],
    ["tests itself leads out", { "tests/test.sh": null, tests: { link: "/etc" } }, ["tests"]],
    ["instruction leads out", { "instruction.md": { link: "/etc/hostname" } }, ["instruction.md"]],
    ["task.toml leads out", { "task.toml": { link: "/etc/hostname" } }, ["task.toml"]],
    ["a dangling link", { "tests/gone": { link: "nowhere" } }, ["tests/gone"]],
    ["a link to itself", { "tests/loop": { link: "loop" } }, ["tests/loop"]],
    ["a folder that contains itself", { "tests/all": { link: ".." } }, ["tests/all/tests"]],
    ["a link out of the solution", { "solution/x": { link: "/etc" } }, ["solution/x"]],
    [
      "Dockerfile leads out",
      { "task.toml": "", "environment/Dockerfile": { link: "/etc/hostname" } },
      ["environment/Dockerfile"],
    ],
  ])("%s", async (_, files, expected) => {
    const error = await failure(await folders.write(files));
    expect(error.code).toBe("ERR_TASK_INVALID");
    expect(filesOf(error)).toEqual(expected);
  });

  test("all files' problems come at once", async () => {
    const error = await failure(
      await folders.write({
        "task.toml": 'artifacts = ["/"]\n[verifier]\ntimeout_sec = -1\n[environment]\ndocker_image = "a"\n',
        "instruction.md": null,
        "tests/leak": { link: "/etc/hostname" },
      }),
    );
    expect(filesOf(error)).toEqual(["task.toml", "task.toml", "instruction.md", "tests/leak"]);
    expect(error.message).toContain("task.toml:3: verifier.timeout_sec: ");
    expect(error.message).toContain(error.directory);
  });

  test("a FIFO is refused and never waited for", async () => {
    const directory = await folders.write();
    await rm(join(directory, "instruction.md"));
    await promisify(execFile)("mkfifo", [join(directory, "instruction.md"), join(directory, "tests/pipe")]);
    expect(filesOf(await failure(directory))).toEqual(["instruction.md", "tests/pipe"]);
  });
});

describe("links inside of the task", () => {
  test("travel as links within their folder, else as what they lead to", async () => {
    const directory = await folders.write({
      "tests/inside": { link: "deep/../test.sh" },
      "tests/deep/up": { link: "../test.sh" },
      "tests/helper.py": { link: "../shared/helper.py" },
      "tests/lib": { link: "../shared" },
      "shared/helper.py": "print()",
      "shared/alias.py": { link: "helper.py" },
    });
    await writeFile(join(directory, "shared/absolute"), "");
    const { files } = await loadTask(directory);
    const shared = (name: string): string => join(directory, "shared", name);
    expect(
      files.testFiles?.entries.map((entry) => [
        entry.path,
        entry.kind === "link" ? entry.target : entry.kind === "file" ? entry.hostPath : null,
      ]),
    ).toEqual([
      ["deep", null],
      ["deep/up", "../test.sh"],
      ["helper.py", shared("helper.py")],
      ["inside", "deep/../test.sh"],
      ["lib", null],
      ["lib/absolute", shared("absolute")],
      ["lib/alias.py", shared("helper.py")],
      ["lib/helper.py", shared("helper.py")],
      ["test.sh", join(directory, "tests/test.sh")],
    ]);
  });
});

describe("loadTasks", () => {
  test("one task's folder, or a folder of tasks", async () => {
    const one = await folders.write({}, "set/b-task");
    await folders.write({}, "set/a-task");
    await folders.write({ "task.toml": "x" }, "set/c-broken");
    await folders.write({ "task.toml": null }, "set/not-a-task");
    const set = join(one, "..");
    const { tasks, invalid } = await loadTasks(set);
    expect(tasks.map(({ name }) => name)).toEqual(["a-task", "b-task"]);
    expect(invalid.map(({ directory }) => directory)).toEqual([join(set, "c-broken")]);
    expect((await loadTasks(one)).tasks.map(({ name }) => name)).toEqual(["b-task"]);
  });
});
