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

/** Only the sealed cluster has servers that boxes may try to reach. */
export const targets: DescribeRuntimeOptions["network"] =
  (BREAKWATER_HOST_ADDRESS ?? "") === "" ? undefined : networkTargets();

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
