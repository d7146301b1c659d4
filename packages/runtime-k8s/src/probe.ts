import type { DoctorLine, RuntimeCapabilities } from "@breakwater/runtime-api";
import { RuntimeError } from "@breakwater/runtime-api";
import type { Deadline } from "@breakwater/driver-kit";
import type { Cluster } from "./cluster.ts";
import type { Enforcement } from "./enforcement.ts";
import { DRIVER } from "./errors.ts";
import type { Settings } from "./options.ts";
import { isAllowed, type Right } from "./pods.ts";

/** The most that this driver can claim. */
export const CAPABILITIES: RuntimeCapabilities = Object.freeze({
  networkModes: ["public", "no-network"],
  // Enforcers let established connections live on, and each of the two modes forbids what the other allows, or is left for it later.
  networkChange: "none",
  allowlistEntries: [],
  allowlistPorts: [],
  stop: "sealed",
  firstProcess: "ours",
  freeze: "none",
  // The number of processes is the node's setting (podPidsLimit). A limit of storage ends the box, a while later: that keeps no promise.
  limits: ["cpus", "memory"],
  maxCpus: null,
  maxMemoryMb: null,
  gpus: 0,
  users: "any",
  imagePin: "observed",
  imageSources: ["reference"],
  services: "none",
  operatingSystems: ["linux"],
  maxLifetimeMs: null,
} satisfies RuntimeCapabilities);

/** What the driver does in its namespace; `deploy/breakwater.yaml` grants exactly this. */
const RIGHTS: readonly Right[] = [
  ...["get", "list", "create", "delete", "patch"].map((verb) => ({ verb, resource: "pods" })),
  ...["get", "create"].map((verb) => ({ verb, resource: "pods", subresource: "exec" })),
  ...["get", "create"].map((verb) => ({ verb, group: "networking.k8s.io", resource: "networkpolicies" })),
];

/** What was found out about a cluster. */
export interface ClusterFacts {
  readonly isEnforced: boolean;
}

/** Throws `ERR_BACKEND_AUTH` with every right that is missing, and what starting pods throws. */
export async function askCluster(cluster: Cluster, enforcement: Enforcement, clock: Deadline): Promise<ClusterFacts> {
  const missing = await missingRights(cluster, clock);
  if (missing.length > 0) {
    const message = `this user may not ${missing.join(", ")} in the namespace ${cluster.namespace}; grant the rights of deploy/breakwater.yaml`;
    throw new RuntimeError({ code: "ERR_BACKEND_AUTH", driver: DRIVER, operation: "probe", message });
  }
  return { isEnforced: await enforcement.isProven(clock) };
}

async function missingRights(cluster: Cluster, clock: Deadline): Promise<readonly string[]> {
  const answers = await Promise.all(
    RIGHTS.map(async (right) => ((await isAllowed(cluster, clock, right)) ? [] : [describe(right)])),
  );
  return answers.flat();
}

function describe({ verb, resource, subresource }: Right): string {
  return `${verb} ${resource}${subresource === undefined ? "" : `/${subresource}`}`;
}

/** Capabilities of this cluster. Without enforcement no policy can be kept, not even `public`, which keeps boxes apart. */
export function enforced({ isEnforced }: ClusterFacts, settings: Settings): RuntimeCapabilities {
  if (isEnforced) return CAPABILITIES;
  return { ...CAPABILITIES, networkModes: settings.sharedNetwork ? ["public"] : [] };
}

/** The same for people, one line for each thing that has to work. */
export async function* describeCluster(
  cluster: Cluster,
  enforcement: Enforcement,
  settings: Settings,
  clock: Deadline,
): AsyncGenerator<DoctorLine> {
  const version = await cluster.call(clock, "GET /version", ({ version: api }, options) => api.getCode(options));
  yield { status: "ok", what: `Kubernetes ${version.gitVersion} at ${cluster.label}, namespace ${cluster.namespace}` };
  let mayWork = true;
  for (const right of RIGHTS) {
    if (await isAllowed(cluster, clock, right)) continue;
    mayWork = false;
    const advice = "kubectl apply -f deploy/breakwater.yaml, and bind the role to this user";
    yield { status: "failed", what: `this user may not ${describe(right)}`, advice };
  }
  if (mayWork) yield { status: "ok", what: `${RIGHTS.length} rights are granted` };
  if (settings.helperImage === "") {
    const advice =
      "build it from deploy/helper.Dockerfile, and name it by BREAKWATER_HELPER_IMAGE or the option helperImage";
    yield { status: "failed", what: "no helper image is named", advice };
    return;
  }
  if (!mayWork) return;
  const before = performance.now();
  const isEnforced = await enforcement.isProven(clock);
  const ms = Math.round(performance.now() - before);
  yield { status: "ok", what: `the helper image ${settings.helperImage} runs` };
  if (isEnforced)
    yield { status: "ok", what: `network policies are enforced (seen to open, close and open again in ${ms} ms)` };
  else {
    const advice = settings.sharedNetwork
      ? "boxes reach each other and the cluster's services, as sharedNetwork allows; use a network plugin that enforces policies"
      : "use a network plugin that enforces policies (Calico, Cilium, kube-router and others); or allow public boxes without by sharedNetwork";
    yield {
      status: settings.sharedNetwork ? "warning" : "failed",
      what: "network policies are accepted and not enforced",
      advice,
    };
  }
  const started = performance.now();
  await enforcement.assertListening(clock);
  yield { status: "ok", what: `two execs took ${Math.round(performance.now() - started)} ms` };
}
