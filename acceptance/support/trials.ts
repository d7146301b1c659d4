import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TaskFileContent, writeTask } from "@breakwater/conformance/grading";
import {
  loadTask,
  type RunTrialOptions,
  runTrial,
  type Task,
  type TrialEvent,
  type TrialResult,
} from "@breakwater/harbor-taskset";
import type { RuntimeDriver } from "@breakwater/runtime-api";
import { dockerDriver } from "@breakwater/runtime-docker";
import { vi } from "vitest";
import { image } from "./backend.ts";

// Whole trials, several in a test, on machines that are small and may be busy: longer than what other live tests get.
vi.setConfig({ testTimeout: 600_000 });

export type Files = Readonly<Record<string, TaskFileContent>>;

export interface Finished {
  readonly result: TrialResult;
  readonly events: readonly TrialEvent[];
  /** A file of the trial's folder; `null` if there is none. */
  readonly file: (path: string) => Promise<string | null>;
}

/** Tasks and trials of one test file, below one temporary folder. */
export class Workbench implements AsyncDisposable {
  readonly driver: RuntimeDriver = dockerDriver();
  readonly #folder: Promise<string> = mkdtemp(join(tmpdir(), "breakwater-acceptance-"));
  #count = 0;

  /** A folder in the temporary one. */
  async folder(name: string): Promise<string> {
    return join(await this.#folder, name);
  }

  async writeTask(files: Files, name: string = `task-${(this.#count += 1)}`): Promise<string> {
    return writeTask(join(await this.#folder, "tasks", name), files);
  }

  async load(files: Files): Promise<Task> {
    return loadTask(await this.writeTask(files));
  }

  async run(files: Files, options: Partial<RunTrialOptions> & Pick<RunTrialOptions, "agent">): Promise<Finished> {
    const task = await this.load(files);
    const result = await runTrial(task, { driver: this.driver, outputDir: await this.folder("trials"), ...options });
    const { dir } = result;
    if (dir === null) throw new Error("the trial has no folder");
    const file = (path: string): Promise<string | null> => readFile(join(dir, path), "utf8").catch(() => null);
    const lines = ((await file("events.jsonl")) ?? "").trimEnd().split("\n");
    return { result, file, events: lines.map((line) => JSON.parse(line) as TrialEvent) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.driver[Symbol.asyncDispose]();
    await rm(await this.#folder, { recursive: true, force: true });
  }
}

export interface TaskOptions {
  readonly mode: "shared" | "separate";
  readonly artifacts?: readonly string[];
  readonly environment?: readonly string[];
  /** Further lines of `[agent]`. */
  readonly agent?: readonly string[];
  /** Further lines after those of `[verifier]`. */
  readonly verifier?: readonly string[];
  readonly agentTimeoutSeconds?: number;
  readonly verifierTimeoutSeconds?: number;
}

/** A `task.toml` for the test image, without a network. */
export function taskFile(options: TaskOptions): string {
  const { mode, artifacts = [], agent = [], verifier = [] } = options;
  const { agentTimeoutSeconds = 300, verifierTimeoutSeconds = 300 } = options;
  const environment = options.environment ?? [`docker_image = "${image}"`];
  return [
    `artifacts = ${JSON.stringify(artifacts)}`,
    "[agent]",
    `timeout_sec = ${agentTimeoutSeconds}`,
    ...agent,
    "[environment]",
    ...environment,
    'network_mode = "no-network"',
    "[verifier]",
    `environment_mode = "${mode}"`,
    `timeout_sec = ${verifierTimeoutSeconds}`,
    ...verifier,
    "",
  ].join("\n");
}

/** What came of it, short, for assertions: the reward, or the reason why there is none. */
export function outcome({ result }: Finished): number | string | null {
  return result.error === null ? result.reward : `${result.error.reason} ${result.error.code}`;
}

/** A driver whose agent's boxes end by themselves this soon. */
export function shortLived(driver: RuntimeDriver, lifetimeMs: number): RuntimeDriver {
  let isFirst = true;
  const create: RuntimeDriver["create"] = (spec) => {
    const input = isFirst ? { ...spec, lifetimeMs } : spec;
    isFirst = false;
    return driver.create(input);
  };
  return new Proxy(driver, {
    get: (target, key) => {
      const value: unknown = key === "create" ? create : Reflect.get(target, key, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

/** Does something when a step of the trial is on record. `acted` rejects if that fails, or if the step never comes. */
export function when(type: TrialEvent["type"], act: (event: TrialEvent) => Promise<void>): When {
  let acting: Promise<void> | null = null;
  return {
    onEvent: (event) => {
      if (event.type !== type) return;
      acting = act(event);
      acting.catch(() => undefined);
    },
    acted: async () => {
      if (acting === null) throw new Error(`there was no event ${type}`);
      await acting;
    },
  };
}

export interface When {
  readonly onEvent: NonNullable<RunTrialOptions["onEvent"]>;
  readonly acted: () => Promise<void>;
}
