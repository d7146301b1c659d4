import type { V1Pod } from "@kubernetes/client-node";
import { type Deadline, proofOf } from "@breakwater/driver-kit";
import { type Proof, RuntimeError } from "@breakwater/runtime-api";
import type { Cluster } from "./cluster.ts";
import { DRIVER, isStatus } from "./errors.ts";
import { listPods, readPod } from "./pods.ts";
import { LABEL } from "./translate.ts";

/** With 0 the cluster forgets a pod whose processes go on. */
const GRACE_SECONDS = 1;
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;
const LAST_WORD_MS = 250;

/** A pod for good: names are taken again. */
export interface PodId {
  readonly name: string;
  readonly uid: string;
}

/**
 * Deletes exactly this pod and asks until it is gone: the cluster forgets a pod that was deleted with grace only when the node has said that its containers
 * have ended. A pod on a node that is lost never goes, and is never said to be gone.
 */
export async function removeUntilGone(cluster: Cluster, clock: Deadline, { name, uid }: PodId): Promise<Proof> {
  const preconditions = { uid };
  let last: V1Pod | null = null;
  try {
    await cluster.call(clock, `DELETE pods/${name}`, ({ core }, options) =>
      core.deleteNamespacedPod(
        { name, namespace: cluster.namespace, body: { gracePeriodSeconds: GRACE_SECONDS, preconditions } },
        options,
      ),
    );
  } catch (error) {
    // 404: gone already. 409: the name is somebody else's now, which the question below finds out.
    if (!isStatus(error, 404, 409)) throw error;
  }
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(1.5 * pauseMs, LONGEST_PAUSE_MS)) {
    try {
      last = await readPod(cluster, clock, name);
    } catch (error) {
      throw unconfirmed(name, uid, last, clock.translate(error));
    }
    if (last === null || last.metadata?.uid !== uid) break;
    // Given up in time to say what is known; the clock alone would only say that it is over.
    if (clock.remainingMs() < pauseMs + LAST_WORD_MS) throw unconfirmed(name, uid, last, undefined);
    try {
      await clock.sleep(pauseMs);
    } catch (error) {
      throw unconfirmed(name, uid, last, error);
    }
  }
  // The same once more by another question.
  const listed = (await listPods(cluster, clock, `${LABEL.pod}=${name}`)).filter(
    ({ metadata }) => metadata?.uid === uid,
  );
  if (listed.length > 0) throw unconfirmed(name, uid, listed[0] ?? null, new Error("it is still in the list of pods"));
  const question = `GET /api/v1/namespaces/${cluster.namespace}/pods/${name}, and the list of pods`;
  const found = last === null ? "404" : `another uid (${last.metadata?.uid})`;
  return proofOf(uid, question, `${found}, and no pod of that uid`);
}

function unconfirmed(name: string, uid: string, pod: V1Pod | null, cause: unknown): RuntimeError {
  const finalizers = pod?.metadata?.finalizers ?? [];
  const reasons = [
    ...(pod?.metadata?.deletionTimestamp === undefined ? [] : ["its node has not said that it ended"]),
    ...(finalizers.length === 0 ? [] : [`held by ${finalizers.join(", ")}`]),
  ];
  const why =
    reasons.length === 0
      ? ""
      : ` (${reasons.join("; ")}${pod?.spec?.nodeName === undefined ? "" : `; node ${pod.spec.nodeName}`})`;
  return new RuntimeError({
    code: "ERR_TEARDOWN_UNCONFIRMED",
    driver: DRIVER,
    operation: "teardownConfirmed",
    message: `the pod ${name} (${uid}) could not be shown to be gone${why}; see whether its node is ready, call again, or sweep later`,
    leftovers: [`pod/${name} ${uid}`],
    cause,
  });
}
