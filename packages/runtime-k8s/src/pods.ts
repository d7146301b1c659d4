import type { CoreV1Event, V1ContainerStatus, V1Pod } from "@kubernetes/client-node";
import { type Deadline, ownerLabel, LABELS } from "@breakwater/driver-kit";
import { RuntimeError, type RuntimeErrorCode } from "@breakwater/runtime-api";
import { type Cluster, operate } from "./cluster.ts";
import { ConnectionError, DRIVER, isStatus } from "./errors.ts";
import { BOX_CONTAINER } from "./translate.ts";

const CREATE_TIMEOUT_MS = 2 * 60 * 1000;
const CREATE_ATTEMPTS = 4;
const FIRST_PAUSE_MS = 80;
const LONGEST_PAUSE_MS = 1_000;
/** The same answer about an image this often means that waiting does not help. */
const IMAGE_ATTEMPTS = 2;
const MAX_EVENTS = 10;

/** One pod, or `null` where the cluster works and has none of that name. Always a fresh answer. */
export async function readPod(cluster: Cluster, clock: Deadline, name: string): Promise<V1Pod | null> {
  try {
    return await cluster.call(clock, `GET pods/${name}`, ({ core }, options) =>
      core.readNamespacedPod({ name, namespace: cluster.namespace }, options),
    );
  } catch (error) {
    if (isStatus(error, 404)) return null;
    throw error;
  }
}

/** The pods that a selector of labels has. Always a fresh answer. */
export async function listPods(cluster: Cluster, clock: Deadline, labelSelector: string): Promise<readonly V1Pod[]> {
  const { items } = await cluster.call(clock, "GET pods", ({ core }, options) =>
    core.listNamespacedPod({ namespace: cluster.namespace, labelSelector }, options),
  );
  return items;
}

/**
 * Makes a pod, once. On a clock of its own, so that nothing is under way when it settles: an answer that got lost is asked for again, and a pod is ours only
 * if it says so itself.
 */
export async function createPod(cluster: Cluster, operation: string, body: V1Pod): Promise<V1Pod> {
  const name = body.metadata?.name ?? "";
  return operate(
    undefined,
    { operation, what: `creating the pod ${name}` },
    async (clock) => {
      for (let attempt = 1; ; attempt++) {
        try {
          return await cluster.call(
            clock,
            `POST pods/${name}`,
            ({ core }, options) => core.createNamespacedPod({ namespace: cluster.namespace, body }, options),
            { idempotent: false },
          );
        } catch (error) {
          const isUnknown = error instanceof ConnectionError || isStatus(error, 500, 502, 503, 504);
          if (!isUnknown && !isStatus(error, 409)) throw await refusedCreation(cluster, clock, operation, error);
          const found = await readPod(cluster, clock, name);
          if (found !== null && isOurs(found)) return found;
          if (found !== null) throw foreignPod(operation, name, error);
          if (attempt >= CREATE_ATTEMPTS) throw error;
          await clock.sleep(FIRST_PAUSE_MS * 2 ** attempt);
        }
      }
    },
    CREATE_TIMEOUT_MS,
  );
}

/** A name proves nothing: whoever may make pods can take it. */
export function isOurs(pod: V1Pod): boolean {
  return pod.metadata?.annotations?.[LABELS.owner] === ownerLabel();
}

function foreignPod(operation: string, name: string, cause: unknown): RuntimeError {
  const message = `there is a pod ${name} already, and it is not ours; it is left alone`;
  return new RuntimeError({ code: "ERR_BACKEND", driver: DRIVER, operation, message, cause });
}

/** 403 stands for a missing right and for a full quota alike. Who has the right was refused by the quota or by another rule of the namespace. */
async function refusedCreation(cluster: Cluster, clock: Deadline, operation: string, error: unknown): Promise<unknown> {
  if (!isStatus(error, 403)) return error;
  const mayCreate = await isAllowed(cluster, clock, { verb: "create", resource: "pods" }).catch(() => false);
  if (!mayCreate) return error;
  const message = `the namespace has no room for the box: ${error.detail}; wait, or ask for less`;
  return new RuntimeError({
    code: "ERR_BACKEND_QUOTA",
    driver: DRIVER,
    operation,
    message,
    retryable: true,
    cause: error,
  });
}

/** One right of this user in the namespace. */
export interface Right {
  readonly verb: string;
  readonly group?: string;
  readonly resource: string;
  readonly subresource?: string;
}

export async function isAllowed(cluster: Cluster, clock: Deadline, right: Right): Promise<boolean> {
  const body = { spec: { resourceAttributes: { namespace: cluster.namespace, ...right } } };
  const { status } = await cluster.call(clock, "POST selfsubjectaccessreviews", ({ authorization }, options) =>
    authorization.createSelfSubjectAccessReview({ body }, options),
  );
  return status?.allowed === true;
}

/** How far a pod has come. */
export type StartProgress =
  | { readonly kind: "running" }
  /** `schedule`: nothing has been found for it; `image`: its image does not come; `work`: somebody is at it. */
  | { readonly kind: "waiting"; readonly for: "schedule" | "image" | "work"; readonly why: string }
  | { readonly kind: "failed"; readonly code: RuntimeErrorCode; readonly why: string };

/** Failures that no waiting mends, by the word of the kubelet. */
const FATAL: Readonly<Record<string, RuntimeErrorCode>> = {
  InvalidImageName: "ERR_IMAGE_NOT_FOUND",
  ErrImageNeverPull: "ERR_IMAGE_NOT_FOUND",
  CreateContainerConfigError: "ERR_BOX_START",
  CreateContainerError: "ERR_BOX_START",
  RunContainerError: "ERR_BOX_START",
  StartError: "ERR_BOX_START",
};
const NO_IMAGE: ReadonlySet<string> = new Set(["ErrImagePull", "ImagePullBackOff"]);

/** What a pod's own description says about its start. */
export function startProgress(pod: V1Pod): StartProgress {
  const { status, metadata } = pod;
  if (metadata?.deletionTimestamp !== undefined)
    return { kind: "failed", code: "ERR_BOX_LOST", why: "something else deletes the pod" };
  const helper = status?.initContainerStatuses?.[0];
  const box = boxStatus(pod);
  for (const container of [helper, box]) {
    const { waiting, terminated } = container?.state ?? {};
    const why = `${waiting?.reason ?? terminated?.reason ?? ""}: ${waiting?.message ?? terminated?.message ?? `exit code ${terminated?.exitCode}`}`;
    const fatal = FATAL[waiting?.reason ?? ""];
    if (fatal !== undefined) return { kind: "failed", code: fatal, why };
    if (NO_IMAGE.has(waiting?.reason ?? ""))
      return { kind: "waiting", for: "image", why: `${container?.image}: ${why}` };
    if (terminated !== undefined && (container === box || terminated.exitCode !== 0))
      return { kind: "failed", code: "ERR_BOX_START", why };
  }
  if (status?.phase === "Failed" || status?.phase === "Succeeded")
    return { kind: "failed", code: "ERR_BOX_START", why: `${status.reason ?? status.phase}: ${status.message ?? ""}` };
  if (box?.state?.running !== undefined) return { kind: "running" };
  const scheduled = status?.conditions?.find(({ type }) => type === "PodScheduled");
  if (scheduled?.status === "False")
    return { kind: "waiting", for: "schedule", why: `${scheduled.reason}: ${scheduled.message}` };
  return { kind: "waiting", for: "work", why: status?.phase ?? "the pod was not looked at yet" };
}

/** Waits until the box's container runs. Gives the pod as it is then. Throws `ERR_BOX_START`, `ERR_BOX_LOST`, `ERR_BACKEND_QUOTA`, `ERR_IMAGE_*`. */
export async function awaitStart(
  cluster: Cluster,
  clock: Deadline,
  created: V1Pod,
  { operation, scheduleTimeoutMs }: { readonly operation: string; readonly scheduleTimeoutMs: number },
): Promise<V1Pod> {
  const name = created.metadata?.name ?? "";
  const began = performance.now();
  const imageFailures = new Set<string>();
  let isBackedOff = 0;
  let last: StartProgress = { kind: "waiting", for: "work", why: "" };
  const fail = async (code: RuntimeErrorCode, why: string, advice: string): Promise<RuntimeError> => {
    const warnings = await lastWarnings(cluster, clock, created).catch(() => []);
    const events = warnings.length === 0 ? "" : ` Last warnings: ${warnings.join("; ")}.`;
    const message = `the pod ${name} did not start: ${why}.${events} ${advice}`;
    return new RuntimeError({ code, driver: DRIVER, operation, message, retryable: code === "ERR_BACKEND_QUOTA" });
  };
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(1.3 * pauseMs, LONGEST_PAUSE_MS)) {
    const pod = await readPod(cluster, clock, name).catch((error: unknown) => {
      // The deadline is told with what was waited for.
      if (clock.signal.aborted && last.kind === "waiting" && last.why !== "")
        throw timedOut(operation, name, last.why, error);
      throw error;
    });
    if (pod === null || pod.metadata?.uid !== created.metadata?.uid)
      throw await fail("ERR_BOX_LOST", "it was removed by something else", "");
    last = startProgress(pod);
    if (last.kind === "running") return pod;
    if (last.kind === "failed") throw await fail(last.code, last.why, ADVICE[last.code] ?? "");
    if (last.for === "schedule" && performance.now() - began > scheduleTimeoutMs) {
      throw await fail("ERR_BACKEND_QUOTA", last.why, "Wait, ask for less, or give it more time (scheduleTimeoutMs).");
    }
    if (last.for === "image") {
      imageFailures.add(last.why);
      if (last.why.includes("ImagePullBackOff")) isBackedOff += 1;
      if (isBackedOff > 0 && imageFailures.size >= IMAGE_ATTEMPTS)
        throw await fail("ERR_IMAGE_PULL", last.why, ADVICE["ERR_IMAGE_PULL"] ?? "");
    }
    await clock.sleep(pauseMs);
  }
}

const ADVICE: Readonly<Partial<Record<RuntimeErrorCode, string>>> = {
  ERR_IMAGE_PULL: "See whether the image exists and the cluster may pull it (imagePullSecrets).",
  ERR_IMAGE_NOT_FOUND: "Check the name of the image.",
  ERR_BOX_START: "See whether the image's working directory and the limits are usable.",
};

function timedOut(operation: string, name: string, why: string, cause: unknown): unknown {
  if (!(cause instanceof RuntimeError) || cause.code !== "ERR_TIMEOUT") return cause;
  const message = `the pod ${name} did not start in time: ${why}`;
  return new RuntimeError({ code: "ERR_TIMEOUT", driver: DRIVER, operation, message, cause });
}

/** For people: what the cluster warned of. Events are kept for a while only, and the right to read them may be missing. */
async function lastWarnings(cluster: Cluster, clock: Deadline, pod: V1Pod): Promise<readonly string[]> {
  const fieldSelector = `involvedObject.uid=${pod.metadata?.uid},type=Warning`;
  const { items } = await cluster.call(clock, "GET events", ({ core }, options) =>
    core.listNamespacedEvent({ namespace: cluster.namespace, fieldSelector, limit: 100 }, options),
  );
  return items.slice(-MAX_EVENTS).map(({ reason, message }: CoreV1Event) => `${reason} ${message}`);
}

/** The status of the container that is the box. */
export function boxStatus(pod: V1Pod): V1ContainerStatus | undefined {
  return pod.status?.containerStatuses?.find(({ name }) => name === BOX_CONTAINER);
}
