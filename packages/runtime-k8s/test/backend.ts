import { createSocket } from "node:dgram";
import { once } from "node:events";
import { connect } from "node:net";
import { networkTargets } from "@breakwater/backends/network/targets";
import type { DescribeRuntimeOptions } from "@breakwater/conformance/runtime";
import { CoreV1Api, KubeConfig } from "@kubernetes/client-node";

/** What `npm run backends -- kubernetes env` prints. */
const {
  KUBECONFIG = "",
  BREAKWATER_ADMIN_KUBECONFIG = "",
  BREAKWATER_IMAGE = "",
  BREAKWATER_OTHER_IMAGE = "",
  BREAKWATER_FIXTURE_IMAGES = "",
  BREAKWATER_HOST_ADDRESS,
} = process.env;
if (KUBECONFIG === "" || BREAKWATER_IMAGE === "") {
  throw new Error("KUBECONFIG and BREAKWATER_IMAGE are not set; run `npm run conformance -- k8s`");
}

export const image: string = BREAKWATER_IMAGE;
/** With another Python. */
export const otherImage: string = BREAKWATER_OTHER_IMAGE;
const namespace = "breakwater";

/** Only the sealed cluster has servers that boxes may try to reach. A `public` box reaches the internet and nothing else: not even the node's metadata address. */
export const targets: DescribeRuntimeOptions["network"] =
  (BREAKWATER_HOST_ADDRESS ?? "") === "" ? undefined : withoutPrivateGround(networkTargets());

function withoutPrivateGround(all: ReturnType<typeof networkTargets>): DescribeRuntimeOptions["network"] {
  const isPrivate = (host: string): boolean => /^(?:10|127|169\.254|198\.51\.100)\./.test(host);
  const unreachable = all.unreachable.map((target) =>
    isPrivate(target.host)
      ? { ...target, forbiddenIn: ["public", "no-network"] as const, answers: () => answers(target) }
      : target,
  );
  return { ...all, unreachable };
}

/** These tests run in the network of the node. */
async function answers({
  host,
  port,
  protocol,
}: {
  host: string;
  port: number;
  protocol?: "tcp" | "udp";
}): Promise<void> {
  if (protocol === "udp") {
    const socket = createSocket("udp4");
    try {
      const answered = once(socket, "message", { signal: AbortSignal.timeout(10_000) });
      socket.send("?", port, host);
      await answered;
    } finally {
      socket.close();
    }
    return;
  }
  const socket = connect({ host, port });
  try {
    await once(socket, "connect", { signal: AbortSignal.timeout(10_000) });
  } finally {
    socket.destroy();
  }
}

export const DRIVER_MODULE: DescribeRuntimeOptions["driverModule"] = {
  url: new URL("../src/index.ts", import.meta.url),
  nodeArguments: ["--conditions=@breakwater/source"],
};

/** Without those that have an ENTRYPOINT: a cluster does not tell of it, so the driver does not run it. */
export function fixtureImages(): DescribeRuntimeOptions["images"] {
  const built = JSON.parse(BREAKWATER_FIXTURE_IMAGES) as Readonly<Record<"non-root" | "path" | "no-shell", string>>;
  return {
    nonRoot: { image: built["non-root"], uid: 1234, workdir: "/home/u" },
    path: { image: built.path, program: "mytool" },
    noShell: { image: built["no-shell"], argv: ["/helper", "mounts"] },
  };
}

/** The cluster as its administrator sees it. */
export function admin(): CoreV1Api {
  const config = new KubeConfig();
  config.loadFromFile(BREAKWATER_ADMIN_KUBECONFIG);
  return config.makeApiClient(CoreV1Api);
}

/** What a stranger does on the cluster, past the driver. A box's id is its pod's name. */
export const sabotage: DescribeRuntimeOptions["sabotage"] = {
  foreignBox: async (ofImage) => {
    const core = admin();
    const name = `stranger-${Math.random().toString(16).slice(2, 10)}`;
    const container = { name: "stranger", image: ofImage, imagePullPolicy: "IfNotPresent", command: ["sleep", "600"] };
    const spec = { containers: [container], restartPolicy: "Never", terminationGracePeriodSeconds: 1 };
    const isRunning = async (): Promise<boolean> =>
      (await core.readNamespacedPod({ name, namespace })).status?.phase === "Running";
    await core.createNamespacedPod({ namespace, body: { metadata: { name }, spec } });
    while (!(await isRunning())) await new Promise((resolve) => setTimeout(resolve, 200));
    return {
      runs: isRunning,
      remove: async () => {
        await core.deleteNamespacedPod({ name, namespace, gracePeriodSeconds: 1 });
      },
    };
  },
};
