import type { Dirent } from "node:fs";
import { readdir, realpath, stat } from "node:fs/promises";
import { basename, join, resolve } from "node:path";

import type { KeyProblem } from "./artifacts-declaration.ts";
import { COMPOSE_FILE, readComposeFile } from "./compose-file.ts";
import { joinInstructions, stripCanary } from "./instruction.ts";
import { lineOfKey } from "./key-lines.ts";
import { isTasksetError, TasksetError, type TasksetProblem } from "./problems.ts";
import { parseTaskFile } from "./task-file.ts";
import {
  FolderProblem,
  IGNORE_FILE,
  isTaskFile,
  isTaskFolder,
  listTaskFolder,
  readTaskFile,
  type FolderLimits,
} from "./task-folder.ts";
import type { ArtifactEntry, BuildFolder, Task, TaskFolder, TaskStep } from "./task.ts";

const MAX_TASK_FILE_BYTES = 1024 ** 2;
const MAX_INSTRUCTION_BYTES = 10 * 1024 ** 2;
const FOLDER_LIMITS: FolderLimits = { maxEntries: 20_000, maxBytes: 2 * 1024 ** 3 };
/** In place of one that cannot be looked at; the problem is noted. */
const NO_FOLDER: BuildFolder = { path: "", exists: false, hasDockerfile: false, hasComposeFile: false, compose: null };
/** Tasks that are loaded at the same time; more only queue for the disk. */
const PARALLEL_LOADS = 16;

export interface LoadOptions {
  /** Further texts for the agent, after the task's instruction. */
  readonly extraInstructions?: readonly string[] | undefined;
}

/**
 * Loads a task's folder and checks everything that does not depend on how it is run. Rejects with a `TasksetError` that has all
 * problems: `ERR_TASK_NOT_FOUND` if there is no `task.toml`, else `ERR_TASK_INVALID`.
 */
export async function loadTask(directory: string, options: LoadOptions = {}): Promise<Task> {
  const root = await findFolder(directory);
  const problems: TasksetProblem[] = [];
  /** Notes what is wrong and goes on, so that all problems are found at once. */
  const attempt = async <T>(work: Promise<T>): Promise<T | null> => {
    try {
      return await work;
    } catch (error) {
      if (!(error instanceof FolderProblem)) throw error;
      problems.push({ file: error.file, key: null, message: error.message, advice: error.advice });
      return null;
    }
  };
  const missing = (file: string, message: string, advice: string): void => {
    problems.push({ file, key: null, message, advice });
  };

  // 1. task.toml
  const fileBytes = await attempt(readTaskFile(root, "task.toml", MAX_TASK_FILE_BYTES));
  if (fileBytes === null && problems.length === 0) throw notFound(directory, "has no task.toml");
  const fileText = fileBytes === null ? null : decode(fileBytes);
  if (fileBytes !== null && fileText === null) missing("task.toml", "is not UTF-8", "save it as UTF-8");
  const parsed = fileText === null ? null : parseTaskFile(fileText);
  problems.push(...(parsed?.problems ?? []));
  const file = parsed?.file ?? null;
  const lines = parsed?.lines ?? {};

  // 2. What the agent is told
  const readInstruction = async (path: string): Promise<string> => {
    const bytes = await attempt(readTaskFile(root, path, MAX_INSTRUCTION_BYTES));
    const text = bytes === null ? null : decode(bytes);
    if (bytes !== null && text === null) missing(path, "is not UTF-8", "save it as UTF-8");
    if (bytes === null && !problems.some((problem) => problem.file === path))
      missing(path, "is missing", "write what the agent is to do into it");
    return joinInstructions(stripCanary(text ?? ""), options.extraInstructions ?? []);
  };
  const instruction = Object.hasOwn(lines, "steps[0]") ? "" : await readInstruction("instruction.md");

  // 3. The folders
  const listFolder = (path: string, withRules = true): Promise<TaskFolder | null> =>
    attempt(listTaskFolder(root, path, FOLDER_LIMITS, withRules));
  const refuseIgnored = async (path: string, script: string, listed: TaskFolder | null): Promise<void> => {
    if (listed?.entries.some((entry) => entry.path === script) !== false) return;
    if (await attempt(isTaskFile(root, `${path}/${script}`)))
      missing(`${path}/${script}`, `is left out by ${IGNORE_FILE}`, "a script that is needed has to travel");
  };
  const environment = await attempt(describeBuildFolder(root, "environment", problems));
  const tests = await attempt(describeBuildFolder(root, "tests", problems));
  const testFiles = await listFolder("tests");
  const solutionFiles = await listFolder("solution");
  const isDefined = environment !== null && (environment.hasDockerfile || environment.hasComposeFile);
  const environmentFiles = isDefined ? null : await listFolder("environment", false);
  await refuseIgnored("tests", "test.sh", testFiles);
  await refuseIgnored("solution", "solve.sh", solutionFiles);
  const steps: TaskStep[] = [];
  for (const { artifacts, ...step } of file?.steps ?? []) {
    const folder = `steps/${step.name}`;
    const ownTests = await attempt(describeBuildFolder(root, `${folder}/tests`, problems));
    const files = {
      tests: ownTests ?? NO_FOLDER,
      testFiles: await listFolder(`${folder}/tests`),
      solutionFiles: await listFolder(`${folder}/solution`),
      workdirFiles: await listFolder(`${folder}/workdir`, false),
    };
    await refuseIgnored(`${folder}/tests`, "test.sh", files.testFiles);
    await refuseIgnored(`${folder}/solution`, "solve.sh", files.solutionFiles);
    for (const path of mixedKinds(testFiles, files.testFiles)) {
      const message = `is of another kind than tests/${path}, over which it is put`;
      missing(`${folder}/tests/${path}`, message, "rename one of the two");
    }
    const text = await readInstruction(`${folder}/instruction.md`);
    steps.push({ ...step, instruction: text, artifacts: artifacts.map(withoutKey), files });
  }

  // 4. What only shows when all is seen together
  const atKey = ({ key, message, advice }: KeyProblem): TasksetProblem => {
    const line = lineOfKey(lines, key);
    return { file: "task.toml", key, ...(line === undefined ? {} : { line }), message, advice };
  };
  const isComposed = environment?.hasComposeFile === true;
  if (file !== null && file.environment.image === null && environment?.hasDockerfile === false && !isComposed) {
    const advice = "write environment/Dockerfile, or name an image as docker_image in [environment]";
    if (environment.exists)
      missing("environment/Dockerfile", "is missing and no image is declared: the agent has no box", advice);
    else
      problems.push(
        atKey({
          key: "environment.docker_image",
          message: "is missing, as is environment/Dockerfile: the agent has no box",
          advice,
        }),
      );
  }

  if (problems.length > 0 || file === null || environment === null || tests === null) {
    throw new TasksetError({ code: "ERR_TASK_INVALID", directory: root, problems: withoutRepetition(problems) });
  }
  const name = file.name ?? basename(root);
  return {
    name,
    shortName: name.slice(name.indexOf("/") + 1),
    directory: root,
    schemaVersion: file.schemaVersion,
    about: file.about,
    metadata: file.metadata,
    source: file.source,
    instruction,
    agent: file.agent,
    environment: file.environment,
    verifier: file.verifier,
    solutionEnv: file.solutionEnv,
    artifacts: file.artifacts.map(withoutKey),
    steps,
    rewardStrategy: file.rewardStrategy,
    files: { environment, tests, testFiles, environmentFiles, solutionFiles },
    warnings: parsed?.warnings ?? [],
    lines,
  };
}

function withoutKey({ source, destination, exclude, service }: ArtifactEntry): ArtifactEntry {
  return { source, destination, exclude, ...(service === undefined ? {} : { service }) };
}

/** Paths of a folder that is put over another one where one has a folder and the other has none. */
function mixedKinds(below: TaskFolder | null, over: TaskFolder | null): readonly string[] {
  if (below === null || over === null) return [];
  const kinds = new Map(below.entries.map(({ path, kind }) => [path, kind === "directory"]));
  return over.entries
    .filter(({ path, kind }) => (kinds.get(path) ?? kind === "directory") !== (kind === "directory"))
    .map(({ path }) => path);
}

export interface LoadedTasks {
  /** Sorted by folder. */
  readonly tasks: readonly Task[];
  /** One error for each folder that has a `task.toml` and is not a valid task. */
  readonly invalid: readonly TasksetError[];
}

/**
 * Harbor's `-p`: a task's folder, or a folder whose direct subfolders are tasks (those without a `task.toml` are passed over). Rejects
 * with `ERR_TASK_NOT_FOUND` if there is no task at all.
 */
export async function loadTasks(path: string, options: LoadOptions = {}): Promise<LoadedTasks> {
  const root = await findFolder(path);
  const folders = (await exists(join(root, "task.toml"))) ? [root] : await findTaskFolders(root);
  if (folders.length === 0) throw notFound(path, "has no task.toml, and none of its folders has one");

  const results: (Task | TasksetError)[] = [];
  let next = 0;
  const loadSome = async (): Promise<void> => {
    for (let index = next++; index < folders.length; index = next++) {
      results[index] = await loadTask(folders[index] ?? root, options).catch((error: unknown) => {
        if (isTasksetError(error)) return error;
        throw error;
      });
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_LOADS }, loadSome));
  return {
    tasks: results.filter((result): result is Task => !(result instanceof TasksetError)),
    invalid: results.filter((result) => result instanceof TasksetError),
  };
}

async function findTaskFolders(root: string): Promise<string[]> {
  const entries: Dirent[] = await readdir(root, { withFileTypes: true });
  const folders: string[] = [];
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const folder = join(root, entry.name);
    if ((entry.isDirectory() || entry.isSymbolicLink()) && (await exists(join(folder, "task.toml"))))
      folders.push(folder);
  }
  return folders;
}

async function describeBuildFolder(root: string, name: string, problems: TasksetProblem[]): Promise<BuildFolder> {
  const exists = await isTaskFolder(root, name);
  const compose = exists ? await readComposeFile(root, name, problems) : null;
  return {
    path: join(root, name),
    exists,
    hasDockerfile: exists && (await isTaskFile(root, `${name}/Dockerfile`)),
    // Harbor knows this name only; docker-compose.yml is an ordinary file.
    hasComposeFile: exists && (await isTaskFile(root, `${name}/${COMPOSE_FILE}`)),
    compose,
  };
}

async function findFolder(path: string): Promise<string> {
  try {
    const root = await realpath(resolve(path));
    if ((await stat(root)).isDirectory()) return root;
  } catch (error) {
    throw notFound(path, `cannot be opened (${(error as NodeJS.ErrnoException).code ?? "unknown error"})`, error);
  }
  throw notFound(path, "is not a folder");
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch {
    return false;
  }
}

function notFound(directory: string, message: string, cause?: unknown): TasksetError {
  const problem = { file: ".", key: null, message, advice: "name a task's folder, or a folder of tasks" };
  return new TasksetError({ code: "ERR_TASK_NOT_FOUND", directory, problems: [problem], cause });
}

function decode(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** The same folder is looked at for several reasons. */
function withoutRepetition(problems: readonly TasksetProblem[]): readonly TasksetProblem[] {
  return [...new Map(problems.map((problem) => [JSON.stringify(problem), problem])).values()];
}
