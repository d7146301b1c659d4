import type { NetworkPolicy } from "@breakwater/runtime-api";
import type { ComposeSource } from "./compose-file.ts";
import type { TasksetProblem } from "./problems.ts";

/**
 * A task in Harbor's format, loaded and validated: what its author wrote, in our words and units, with the format's defaults filled
 * in. Nothing here depends on a driver, on options of a run, or on the host's environment; `planTrial` brings those in.
 */
export interface Task {
  /** `[task].name` (`org/name`), else the folder's own name. */
  readonly name: string;
  /** The part of the name after the `/`. */
  readonly shortName: string;
  /** Absolute, links resolved. */
  readonly directory: string;
  readonly schemaVersion: string;
  /** `[task]` without its name; `null` if the file has no such table. */
  readonly about: TaskAbout | null;
  /** `[metadata]`: free, JSON values only (dates became ISO 8601 texts). */
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly source: string | null;
  /** What the agent is told: `instruction.md` without canary lines. Empty for a task of several steps, each of which has its own. */
  readonly instruction: string;
  readonly agent: TaskAgent;
  readonly environment: TaskEnvironment;
  readonly verifier: TaskVerifier;
  /** `[solution.env]`, templates unresolved. */
  readonly solutionEnv: Readonly<Record<string, string>>;
  /** As declared, in order, without the convention entry for `/logs/artifacts`. */
  readonly artifacts: readonly ArtifactEntry[];
  /** `[[steps]]`, done one after the other in one box; empty for a task of a single step. */
  readonly steps: readonly TaskStep[];
  /** What the rewards of several steps come to: `mean` by key over the steps that were done, or those of the last one. */
  readonly rewardStrategy: "mean" | "final";
  readonly files: TaskFiles;
  /** Doubts that do not stop the task: unknown keys, legacy fields, overlapping artifacts. */
  readonly warnings: readonly TasksetProblem[];
  /** Where keys of `task.toml` are written, for messages: dotted key to line. */
  readonly lines: Readonly<Record<string, number>>;
}

export interface TaskAbout {
  readonly description: string;
  readonly version: string | null;
  readonly authors: readonly { readonly name: string; readonly email: string | null }[];
  readonly keywords: readonly string[];
}

/** `[agent]`. */
export interface TaskAgent {
  /** `null` = no limit. */
  readonly timeoutMs: number | null;
  /** A name or an id; `null` = the image's user. */
  readonly user: string | null;
  /** Only while the agent works; `null` = the box's baseline. */
  readonly network: NetworkPolicy | null;
}

/** `[environment]` and `[verifier.environment]`: the same table. `null` = not written. */
export interface TaskEnvironment {
  /** Bounds pulling or building the image. */
  readonly buildTimeoutMs: number;
  readonly image: string | null;
  readonly operatingSystem: "linux" | "windows";
  /** True if `os` was written; an inherited image brings its own system otherwise. */
  readonly operatingSystemWritten: boolean;
  readonly cpus: number | null;
  readonly memoryMb: number | null;
  readonly storageMb: number | null;
  readonly gpus: number | null;
  readonly gpuTypes: readonly string[];
  /** `topology` is the number of chips along each side, for instance `2x4`. */
  readonly tpu: { readonly type: string; readonly topology: string } | null;
  /** Templates unresolved. */
  readonly env: Readonly<Record<string, string>>;
  readonly skillsDirectory: string | null;
  /** For the agent. */
  readonly mcpServers: readonly McpServer[];
  readonly healthcheck: TaskHealthcheck | null;
  readonly workdir: string | null;
  /** The box's baseline. */
  readonly network: NetworkPolicy;
}

/** A server of the Model Context Protocol that the agent is to use. */
export type McpServer =
  | { readonly name: string; readonly transport: "stdio"; readonly command: string; readonly args: readonly string[] }
  | {
      readonly name: string;
      readonly transport: "sse" | "streamable-http";
      readonly url: string;
      /** In a task, templates unresolved: `${VAR}` and `${VAR:-default}`, also within a text. */
      readonly headers: Readonly<Record<string, string>>;
    };

/** A shell command that must succeed before the box is used (Harbor's rules: failures within the start period do not count). */
export interface TaskHealthcheck {
  readonly command: string;
  readonly intervalMs: number;
  /** Of one attempt; `null` = none of its own. An attempt that runs into it counts as failed. */
  readonly timeoutMs: number | null;
  readonly startPeriodMs: number;
  readonly startIntervalMs: number;
  /** Consecutive failures that make the box unhealthy. */
  readonly retries: number;
}

export type VerifierMode = "shared" | "separate";

/** `[verifier]`. */
export interface TaskVerifier {
  /** `null` = not written. */
  readonly timeoutMs: number | null;
  /** Templates unresolved. */
  readonly env: Readonly<Record<string, string>>;
  readonly user: string | null;
  /** As written; see `resolveVerifierMode`. */
  readonly mode: VerifierMode | null;
  readonly environment: TaskEnvironment | null;
  readonly collect: readonly CollectHook[];
  /** Only while the tests run; `null` = the box's baseline. */
  readonly network: NetworkPolicy | null;
}

/** `[[verifier.collect]]`: a shell command run in the agent's box after the agent, before artifacts are collected. */
export interface CollectHook {
  readonly command: string;
  /** Beside the agent's box, where it is run when that can run nothing any more; absent = in the agent's box itself. */
  readonly service?: string | undefined;
  readonly timeoutMs: number;
  /** `null` = the image's user, not the agent's. */
  readonly user: string | null;
}

/** One of `[[steps]]`. What is `null` here is as the task says; `artifacts`, `verifier.env` and `verifier.collect` come on top of the task's. */
export interface TaskStep {
  /** Unique in its task, and a plain name of a folder. */
  readonly name: string;
  readonly instruction: string;
  readonly agent: TaskAgent;
  readonly verifier: TaskVerifier;
  readonly minReward: MinReward | null;
  /** In the agent's box, before the step begins. */
  readonly healthcheck: TaskHealthcheck | null;
  readonly artifacts: readonly ArtifactEntry[];
  readonly files: TaskStepFiles;
}

/** What a step's rewards must reach for the next step to be done: of the key `reward`, or of every key that is named. */
export type MinReward = number | Readonly<Record<string, number>>;

/** Folders in `steps/<name>/`. */
export interface TaskStepFiles {
  readonly tests: BuildFolder;
  /** Put over the task's; `null` if there is no such folder. */
  readonly testFiles: TaskFolder | null;
  /** Instead of the task's; `null` if there is no such folder. */
  readonly solutionFiles: TaskFolder | null;
  /** Put into the working directory before the step, whose `setup.sh` is run then; `null` if there is no such folder. */
  readonly workdirFiles: TaskFolder | null;
}

/** One entry of `artifacts`. */
export interface ArtifactEntry {
  /** Normalised; absolute, or relative to the agent box's working directory. */
  readonly source: string;
  /** Where it is placed on the host, below the trial's `artifacts/`; `null` = a mirror of `source`. */
  readonly destination: string | null;
  /** Patterns in the manner of tar's `--exclude`, relative to `source`. They do not apply to single files. */
  readonly exclude: readonly string[];
  /** The service beside the agent's box that has it; absent = that box itself. */
  readonly service?: string | undefined;
}

/** The task's folders, as far as trials need them. */
export interface TaskFiles {
  readonly environment: BuildFolder;
  readonly tests: BuildFolder;
  /** Everything below `tests/`, for the upload; `null` if there is no such folder. */
  readonly testFiles: TaskFolder | null;
  /** Everything below `environment/` if it has no build definition (its files are staged then); else `null`. */
  readonly environmentFiles: TaskFolder | null;
  /** Everything below `solution/`; `null` if there is no such folder. */
  readonly solutionFiles: TaskFolder | null;
}

/** A folder that may define an image. */
export interface BuildFolder {
  /** Absolute. */
  readonly path: string;
  readonly exists: boolean;
  readonly hasDockerfile: boolean;
  readonly hasComposeFile: boolean;
  /** What it has in it; `null` where it could not be read. */
  readonly compose: ComposeSource | null;
}

/** A listing of a folder that is safe to read: no entry leads out of the task's folder. */
export interface TaskFolder {
  /** Absolute. */
  readonly path: string;
  /** Parents before children, sorted by path. */
  readonly entries: readonly TaskFolderEntry[];
  /** Content of all files together. */
  readonly bytes: number;
}

export type TaskFolderEntry =
  | { readonly kind: "directory"; readonly path: string; readonly mode: number }
  | {
      readonly kind: "file";
      /** Relative to the folder, with `/`. */
      readonly path: string;
      /** Permission bits, 0777 at most. */
      readonly mode: number;
      readonly bytes: number;
      /** Absolute path to read from: differs from the entry's own where a link led to elsewhere in the task's folder. */
      readonly hostPath: string;
    }
  /** A relative link that stays inside the folder; travels as a link. */
  | { readonly kind: "link"; readonly path: string; readonly target: string };
