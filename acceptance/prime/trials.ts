import { randomInt } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { type OwnEmulator, startEmulator } from "@breakwater/backends/prime";
import type { Agent, TrialResult } from "@breakwater/harbor-taskset";
import type { RuntimeDriver } from "@breakwater/runtime-api";
import { primeDriver } from "@breakwater/runtime-prime";
import { dockerHost, image } from "../support/backend.ts";
import { Workbench } from "../support/trials.ts";
import type { SandboxKind, ServiceFault } from "./faults.ts";

interface SeenSandbox {
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly labels: readonly string[];
  readonly createdAt: string;
  readonly terminatedAt: string | null;
  readonly boxRuns: boolean;
}

const ENDED: ReadonlySet<string> = new Set(["TERMINATED", "ERROR", "TIMEOUT"]);
/** A reward that no fault can be mistaken for: what the verifier writes if it did not get the agent's work. */
const WITHOUT_WORK = 0.25;

/** A trial under faults: what came of it, and every promise that was broken. */
export interface FaultyTrial {
  /** `graded`, or reason, code and phase. */
  readonly outcome: string;
  readonly broken: readonly string[];
  readonly durationMs: number;
  readonly result: TrialResult;
}

/** Late, so that what begins with it has begun; in one program, so that no fault can be met between two. */
function agentThatLeaves(reward: number): Agent {
  return async function agent({ box }): Promise<void> {
    await sleep(500);
    const { exitCode } = await box.exec([
      "sh",
      "-c",
      `mkdir -p /app; sleep 1; echo ${reward} >/app/answer.txt; sleep 1`,
    ]);
    if (exitCode !== 0) throw new Error(`the agent's program ended with ${exitCode}`);
  };
}

/** An emulator with a driver of its own: one trial at a time, as faults are for whoever comes. */
class Place implements AsyncDisposable {
  readonly #emulator: OwnEmulator;
  readonly #driver: RuntimeDriver;

  private constructor(emulator: OwnEmulator, driver: RuntimeDriver) {
    this.#emulator = emulator;
    this.#driver = driver;
  }

  static async open(kind: SandboxKind): Promise<Place> {
    const emulator = await startEmulator(dockerHost, { boxes: "processes" });
    const driver = primeDriver({ kind, apiKey: emulator.apiKey, baseUrl: emulator.url });
    // The box that looks at the image is none of a trial.
    await driver.prepareImage({ reference: image });
    return new Place(emulator, driver);
  }

  async run(workbench: Workbench, faults: readonly ServiceFault[]): Promise<FaultyTrial> {
    const emulator = this.#emulator;
    await emulator.admin("POST", "/reset", {});
    const reward = randomInt(300_000, 1_000_000) / 1_000_000;
    const begun: Promise<unknown>[] = [];
    for (const fault of faults.filter(({ from }) => from === undefined)) await this.#begin(fault, "");
    const startedAt = performance.now();
    const { result } = await workbench.run(
      {
        "task.toml": `artifacts = ["/app"]
[environment]
docker_image = "${image}"
network_mode = "public"
[verifier]
environment_mode = "separate"
timeout_sec = ${Math.min(...faults.map((it) => it.verifierTimeoutSeconds ?? 300))}
`,
        "instruction.md": "Leave the answer in /app/answer.txt.\n",
        "tests/test.sh": `#!/bin/sh
echo 0 >/logs/verifier/reward.txt
sleep 1
cat /app/answer.txt >/logs/verifier/reward.txt || echo ${WITHOUT_WORK} >/logs/verifier/reward.txt
`,
      },
      {
        driver: this.#driver,
        agent: agentThatLeaves(reward),
        onEvent: (event) => {
          for (const fault of faults) if (fault.from === event.type) begun.push(this.#begin(fault, event.box ?? ""));
        },
      },
    );
    const durationMs = performance.now() - startedAt;
    await Promise.all(begun);
    const { error } = result;
    const outcome = error === null ? "graded" : `${error.reason} ${error.code} ${error.phase}`;
    return { outcome, broken: await this.#broken(result, reward, faults), durationMs, result };
  }

  async #begin({ knobs, rules = [], endsBox }: ServiceFault, box: string): Promise<void> {
    if (knobs !== undefined) await this.#emulator.admin("PATCH", "/knobs", knobs);
    for (const rule of rules) await this.#emulator.admin("POST", "/faults", rule);
    if (endsBox !== true) return;
    const found = (await this.#sandboxes()).find(({ name }) => name === box);
    if (found === undefined) throw new Error(`the emulator has no sandbox named ${box}`);
    await this.#emulator.admin("POST", `/sandboxes/${found.id}/end`, { status: "TERMINATED" });
  }

  async #broken(result: TrialResult, reward: number, faults: readonly ServiceFault[]): Promise<readonly string[]> {
    const broken: string[] = [];
    const { error } = result;
    if (error === null && result.reward !== reward)
      broken.push(`reward ${result.reward}, the verifier wrote ${reward}`);
    if (error !== null && (result.rewards !== null || result.reward !== null)) broken.push("a reward beside an error");
    if (error !== null && !["infrastructure", "timeout"].includes(error.reason)) broken.push(`blames ${error.reason}`);
    if (result.leftovers.length > 0) broken.push(`says that it has left ${result.leftovers.join(", ")}`);

    const [agent, verifier, ...more] = (await this.#sandboxes()).filter(({ labels }) =>
      labels.includes(`breakwater.trial=${result.trial}`),
    );
    if (more.length > 0) broken.push(`${more.length + 2} sandboxes`);
    const goneAt = agent?.terminatedAt ?? null;
    if (verifier !== undefined && (goneAt === null || Date.parse(goneAt) > Date.parse(verifier.createdAt))) {
      broken.push("the verifier's box was made before the agent's was gone");
    }
    // An orphan may still be on its way up.
    const waitMs = Math.max(0, ...faults.map(({ knobs }) => Number(knobs?.["provisioningMs"] ?? 0)));
    const until =
      performance.now() + (faults.some(({ knobs }) => knobs?.["deleteRaceLeavesOrphan"] === true) ? waitMs : 0);
    for (;;) {
      const left = (await this.#sandboxes()).filter(({ status, boxRuns }) => boxRuns || !ENDED.has(status));
      broken.push(...left.map(({ id, status }) => `left ${id} ${status}`));
      if (left.length > 0 || performance.now() >= until) return broken;
      await sleep(1000);
    }
  }

  async #sandboxes(): Promise<readonly SeenSandbox[]> {
    const { sandboxes } = (await this.#emulator.admin("GET", "/sandboxes")) as {
      readonly sandboxes: readonly SeenSandbox[];
    };
    return sandboxes;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#driver[Symbol.asyncDispose]();
    await this.#emulator[Symbol.asyncDispose]();
  }
}

/** As many places as trials run side by side. */
export class Places implements AsyncDisposable {
  readonly #kind: SandboxKind;
  readonly #workbench = new Workbench();
  readonly #all: Place[] = [];
  readonly #free: Place[] = [];
  readonly #table: string[] = [];

  constructor(kind: SandboxKind) {
    this.#kind = kind;
  }

  async run(faults: readonly ServiceFault[]): Promise<FaultyTrial> {
    let place = this.#free.pop();
    if (place === undefined) {
      place = await Place.open(this.#kind);
      this.#all.push(place);
    }
    try {
      const trial = await place.run(this.#workbench, faults);
      const names = faults.map(({ name }) => name).join(" + ");
      const seconds = `${Math.round(trial.durationMs / 1000)} s`;
      this.#table.push(`| ${names} | ${trial.outcome} | ${seconds} | ${trial.broken.join("; ") || "-"} |`);
      return trial;
    } finally {
      this.#free.push(place);
    }
  }

  /** What came of every trial so far. */
  get table(): string {
    const head = [`| fault, ${this.#kind} | outcome | time | broken promises |`, "| --- | --- | --- | --- |"];
    return [...head, ...this.#table.toSorted()].join("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#all.map((place) => place[Symbol.asyncDispose]()));
    await this.#workbench[Symbol.asyncDispose]();
  }
}
