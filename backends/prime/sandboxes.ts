import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { type Box, type Boxes, NoImageError } from "./box.ts";
import { enforceEgress } from "./egress.ts";
import type { Knobs } from "./knobs.ts";
import type { CreateBody, EgressPolicy } from "./validation.ts";

export type Status = "PENDING" | "PROVISIONING" | "RUNNING" | "PAUSED" | "ERROR" | "TERMINATED" | "TIMEOUT";

const TERMINAL: ReadonlySet<Status> = new Set(["ERROR", "TERMINATED", "TIMEOUT"]);
const MEBIBYTES_PER_GB = 1024;
/** Containers outlive their sandboxes only when this process dies; then `up` or `down` removes them. */
const UNBOUNDED_LIFETIME_MS = 24 * 60 * 60_000;

/** One sandbox: the record, which stays, and the box, which does not. */
export class Sandbox {
  readonly id: string = randomId(24);
  readonly userNs: string = `ns-${randomId(8)}`;
  readonly jobId: string = `job-${randomId(16)}`;
  readonly body: CreateBody;
  readonly createdAtMs: number = Date.now();
  status: Status = "PENDING";
  updatedAtMs: number = this.createdAtMs;
  startedAtMs: number | null = null;
  terminatedAtMs: number | null = null;
  exitCode: number | null = null;
  errorType: string | null = null;
  errorMessage: string | null = null;
  terminationReason: string | null = null;
  pendingImageBuildId: string | null = null;
  /** A DELETE was answered with success. */
  deleted = false;
  /** Deleted before it ran, and provisioning did not hear of it. */
  orphaned = false;
  box: Box | undefined;
  /** Its box is being removed. */
  isEnding = false;
  lastUsedAtMs: number = this.createdAtMs;
  /** Calls that use it now; a running command pins it. */
  inUse = 0;
  egress: { readonly policy: EgressPolicy; readonly generation: number };
  appliedGeneration = -1;
  readonly tokens: Map<string, number> = new Map();

  constructor(body: CreateBody) {
    this.body = body;
    this.egress = {
      policy: { allowlist: body.network_allowlist ?? null, denylist: body.network_denylist ?? null },
      generation: 0,
    };
  }

  get isVm(): boolean {
    return this.body.vm;
  }

  get isTerminal(): boolean {
    return TERMINAL.has(this.status);
  }

  get team(): string {
    return this.body.team_id ?? "";
  }
}

export function randomId(length: number): string {
  const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789";
  return [...randomBytes(length)].map((byte) => alphabet[byte % alphabet.length]).join("");
}

/** All sandboxes of one emulator, and what happens to them by itself. */
export class Sandboxes {
  readonly #boxes: Boxes;
  readonly #knobs: () => Knobs;
  readonly #all = new Map<string, Sandbox>();
  readonly #byKey = new Map<string, Sandbox>();
  readonly #builtImages = new Set<string>();
  readonly #idleTimer: NodeJS.Timeout;

  constructor(boxes: Boxes, knobs: () => Knobs) {
    this.#boxes = boxes;
    this.#knobs = knobs;
    this.#idleTimer = setInterval(() => this.#endIdle(), this.#knobs().idleScanMs);
    this.#idleTimer.unref();
  }

  get all(): readonly Sandbox[] {
    return [...this.#all.values()];
  }

  get(id: string): Sandbox | undefined {
    return this.#all.get(id);
  }

  hasImage(image: string): Promise<boolean> {
    return this.#boxes.hasImage(image);
  }

  byRoute(userNs: string, jobId: string): Sandbox | undefined {
    return this.all.find((sandbox) => sandbox.userNs === userNs && sandbox.jobId === jobId);
  }

  /** The sandbox of this idempotency key, if there is one; else a new one. */
  create(body: CreateBody): { readonly sandbox: Sandbox; readonly isReplay: boolean } {
    const key = body.idempotency_key ? `${body.team_id ?? ""} ${body.idempotency_key}` : undefined;
    const known = key === undefined ? undefined : this.#byKey.get(key);
    if (known !== undefined) return { sandbox: known, isReplay: true };
    const sandbox = new Sandbox(body);
    this.#all.set(sandbox.id, sandbox);
    if (key !== undefined) this.#byKey.set(key, sandbox);
    void this.#bringUp(sandbox).catch((error: unknown) => {
      this.#end(sandbox, "ERROR", { errorType: "PROVISIONING_FAILED", errorMessage: (error as Error).message });
    });
    return { sandbox, isReplay: false };
  }

  /** Whether the gateway knows it: RUNNING, and for long enough. */
  isReachable(sandbox: Sandbox): boolean {
    return sandbox.status === "RUNNING" && Date.now() >= (sandbox.startedAtMs ?? 0) + this.#knobs().reachableLagMs;
  }

  /** Answered at once; the box goes when it goes. */
  delete(sandbox: Sandbox): void {
    const { deleteLingersMs, deleteRaceLeavesOrphan } = this.#knobs();
    const isUp = sandbox.status === "RUNNING" || sandbox.status === "PAUSED";
    if (!isUp && !sandbox.isTerminal && deleteRaceLeavesOrphan) {
      // It looks ended, and provisioning, which did not hear of it, brings it up.
      sandbox.orphaned = true;
      this.#set(sandbox, "TERMINATED");
      return;
    }
    sandbox.deleted = true;
    if (!isUp) {
      this.#end(sandbox, "TERMINATED", { terminationReason: "deleted" });
      return;
    }
    setTimeout(() => this.#end(sandbox, "TERMINATED", { terminationReason: "deleted" }), deleteLingersMs);
  }

  /** What somebody else, or the platform, does to a sandbox. */
  end(sandbox: Sandbox, status: "ERROR" | "TERMINATED" | "TIMEOUT", errorType: string | null): void {
    this.#end(sandbox, status, { errorType, terminationReason: errorType === null ? "outside" : null });
  }

  setEgress(sandbox: Sandbox, policy: EgressPolicy): void {
    sandbox.egress = { policy, generation: sandbox.egress.generation + 1 };
    const { generation } = sandbox.egress;
    setTimeout(() => {
      if (sandbox.egress.generation !== generation) return;
      this.#applyEgress(sandbox).catch((error: unknown) => process.stderr.write(`${sandbox.id}: ${String(error)}\n`));
    }, this.#knobs().egressAppliesAfterMs);
  }

  async close(): Promise<void> {
    clearInterval(this.#idleTimer);
    for (const sandbox of this.all) this.#end(sandbox, "TERMINATED", { terminationReason: "emulator ended" });
    await Promise.all(this.all.map(async ({ box }) => await box?.remove()));
  }

  async #bringUp(sandbox: Sandbox): Promise<void> {
    const { body } = sandbox;
    const isOver = (): boolean => (sandbox.isTerminal || sandbox.isEnding) && !sandbox.orphaned;
    await sleep(this.#knobs().pendingMs);
    const { imageBuildMs } = this.#knobs();
    if (body.vm && imageBuildMs > 0 && !this.#builtImages.has(body.docker_image)) {
      sandbox.pendingImageBuildId = randomId(24);
      await sleep(imageBuildMs);
      this.#builtImages.add(body.docker_image);
      sandbox.pendingImageBuildId = null;
    }
    if (isOver()) return;
    if (!sandbox.orphaned) this.#set(sandbox, "PROVISIONING");
    await sleep(this.#knobs().provisioningMs);
    if (isOver()) return;
    let box: Box;
    try {
      box = await this.#boxes.create({
        sandboxId: sandbox.id,
        image: body.docker_image,
        argv: firstProcess(body),
        env: { ...body.environment_vars, ...body.secrets },
        cpus: body.cpu_cores,
        memoryMb: body.memory_gb * MEBIBYTES_PER_GB,
        expiresAtMs: Date.now() + this.#lifetimeMs(body),
      });
    } catch (error) {
      if (!(error instanceof NoImageError)) throw error;
      this.#end(sandbox, "ERROR", {
        errorType: "IMAGE_PULL_FAILED",
        errorMessage: `Failed to pull image ${body.docker_image}`,
      });
      return;
    }
    sandbox.box = box;
    if (isOver()) return await box.remove();
    await box.start();
    await this.#applyEgress(sandbox);
    if (isOver()) return await box.remove();
    sandbox.startedAtMs = Date.now();
    sandbox.lastUsedAtMs = Date.now();
    sandbox.terminatedAtMs = null;
    sandbox.orphaned = false;
    this.#set(sandbox, "RUNNING");
    this.#watch(sandbox, box).catch((error: unknown) => process.stderr.write(`${sandbox.id}: ${String(error)}\n`));
    if (body.timeout_minutes > 0) {
      const { timeoutStatus } = this.#knobs();
      setTimeout(() => this.#end(sandbox, timeoutStatus, { errorType: "TIMEOUT" }), this.#lifetimeMs(body)).unref();
    }
  }

  async #watch(sandbox: Sandbox, box: Box): Promise<void> {
    const end = await box.ended();
    if (end === null || sandbox.isTerminal || sandbox.isEnding) return;
    sandbox.exitCode = end.exitCode;
    if (end.oomKilled && end.exitCode === 137) this.#end(sandbox, "ERROR", { errorType: "OOM_KILLED" });
    else this.#end(sandbox, "TERMINATED", { terminationReason: "completed" });
  }

  #lifetimeMs({ timeout_minutes: minutes }: CreateBody): number {
    return minutes > 0 ? minutes * this.#knobs().minuteMs : UNBOUNDED_LIFETIME_MS;
  }

  async #applyEgress(sandbox: Sandbox): Promise<void> {
    const { policy, generation } = sandbox.egress;
    if (!sandbox.isVm || sandbox.box === undefined || sandbox.isTerminal) return;
    if (await enforceEgress(sandbox.box, policy)) sandbox.appliedGeneration = generation;
  }

  #endIdle(): void {
    const { minuteMs } = this.#knobs();
    for (const sandbox of this.all) {
      const idleMinutes = sandbox.body.idle_timeout_minutes;
      if (sandbox.status !== "RUNNING" || !idleMinutes || sandbox.inUse > 0) continue;
      if (Date.now() - sandbox.lastUsedAtMs > idleMinutes * minuteMs) {
        this.#end(sandbox, "TERMINATED", { errorType: "TIMEOUT", terminationReason: "idle" });
      }
    }
  }

  #set(sandbox: Sandbox, status: Status): void {
    sandbox.status = status;
    sandbox.updatedAtMs = Date.now();
    if (TERMINAL.has(status)) sandbox.terminatedAtMs = Date.now();
  }

  #end(
    sandbox: Sandbox,
    status: "ERROR" | "TERMINATED" | "TIMEOUT",
    why: Partial<Pick<Sandbox, "errorType" | "errorMessage" | "terminationReason">>,
  ): void {
    if (sandbox.isTerminal || sandbox.isEnding) return;
    // It has ended when nothing of it runs any more.
    sandbox.isEnding = true;
    const removing = sandbox.box?.remove() ?? Promise.resolve();
    removing
      .catch((error: unknown) => process.stderr.write(`${sandbox.id}: ${String(error)}\n`))
      .finally(() => {
        Object.assign(sandbox, why);
        this.#set(sandbox, status);
      });
  }
}

/**
 * A container's first process is its command. A VM has an init, which reaps and which nothing inside can end: here bash, which every VM image has,
 * and which waits without a child that could be killed. Its command, if it has one, ends the VM by ending.
 */
function firstProcess({ vm, start_command: command }: CreateBody): readonly string[] {
  const isArgv = typeof command === "object" && command !== null;
  if (!vm)
    return isArgv ? [command.executable, ...command.args] : ["/bin/sh", "-c", command || "exec tail -f /dev/null"];
  const init = "exec 3<> <(:); while :; do read -r -t 3600 -u 3; done";
  return isArgv
    ? ["/bin/bash", "-c", '"$@" & wait "$!"', "init", command.executable, ...command.args]
    : ["/bin/bash", "-c", init];
}
