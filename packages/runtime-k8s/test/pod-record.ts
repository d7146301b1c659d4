import { setTimeout as sleep } from "node:timers/promises";
import type { BackendRecord, BoxRecord } from "@breakwater/conformance/grading";
import { KubeConfig, type V1Pod, Watch } from "@kubernetes/client-node";

/** How long the cluster may take to report what it has done. */
const SETTLE_MS = 5_000;
const { BREAKWATER_ADMIN_KUBECONFIG = "" } = process.env;

/** The cluster's own account of our boxes: its stream of changes, listened to from now on. Times are places in that stream, which is in the order of what happened. */
export async function podRecord(): Promise<BackendRecord> {
  const config = new KubeConfig();
  config.loadFromFile(BREAKWATER_ADMIN_KUBECONFIG);
  const boxes: (BoxRecord & { readonly trial: string | undefined; goneAt: number | null })[] = [];
  let place = 0;
  const note = (phase: string, { metadata }: V1Pod): void => {
    place += 1;
    const id = metadata?.uid ?? "";
    const known = boxes.find((box) => box.id === id);
    if (phase === "ADDED" && known === undefined)
      boxes.push({ id, createdAt: place, goneAt: null, trial: metadata?.annotations?.["breakwater.trial"] });
    if (phase === "DELETED" && known !== undefined) known.goneAt = place;
  };
  const query = { labelSelector: "breakwater.role=box" };
  let isOver = false;
  let ended: Error | undefined;
  const watch = async (): Promise<AbortController> =>
    await new Watch(config).watch("/api/v1/namespaces/breakwater/pods", query, note, (error: unknown) => {
      // A stream that nothing comes through ends after a while; what is there then is told again.
      if (isOver) return;
      void watch().then(
        (next) => (current = next),
        (cause: unknown) => (ended = new Error(`the record of pods ended: ${String(error)}`, { cause })),
      );
    });
  let current = await watch();

  const ofTrial = (trial: string): readonly BoxRecord[] => boxes.filter((box) => box.trial === trial);
  return {
    boxes: async (trial) => {
      const end = performance.now() + SETTLE_MS;
      const settled = (): boolean => ofTrial(trial).length > 0 && ofTrial(trial).every(({ goneAt }) => goneAt !== null);
      while (!settled() && performance.now() < end) await sleep(50);
      if (ended !== undefined) throw ended;
      return ofTrial(trial);
    },
    [Symbol.asyncDispose]: async () => {
      isOver = true;
      current.abort();
    },
  };
}
