import type { V1Toleration } from "@kubernetes/client-node";

/** What `k8sDriver` takes. Nothing is contacted before the first operation. */
export interface K8sDriverOptions {
  /** A kubeconfig file. Default is `KUBECONFIG`, else `~/.kube/config`, else the service account of the pod that this runs in. */
  readonly kubeconfig?: string | undefined;
  /** Default is the kubeconfig's current one. */
  readonly context?: string | undefined;
  /** Only for boxes: whoever may make pods in a namespace can use all of its secrets. Default is `BREAKWATER_K8S_NAMESPACE`, else `breakwater`. */
  readonly namespace?: string | undefined;
  /**
   * An image with box-helper's program at `/helper`, which each box gets its helper from. Default is `BREAKWATER_HELPER_IMAGE`. `deploy/` says how
   * to make it.
   */
  readonly helperImage?: string | undefined;
  readonly imagePullSecrets?: readonly string[] | undefined;
  readonly runtimeClass?: string | undefined;
  readonly nodeSelector?: Readonly<Record<string, string>> | undefined;
  readonly tolerations?: readonly V1Toleration[] | undefined;
  readonly priorityClass?: string | undefined;
  /**
   * `compat`: root and setuid programs work, without raw sockets. `user-namespace`: the same, and root in the box is nobody on the node; needs
   * nodes that can do so. Default is `compat`.
   */
  readonly security?: "compat" | "user-namespace" | undefined;
  /** How long a box may wait for room on a node, in a quota included. Default is 5 minutes. */
  readonly scheduleTimeoutMs?: number | undefined;
  /** Resolvers of boxes that may ever be `public`; at most three addresses. Default is two public ones. */
  readonly nameservers?: readonly string[] | undefined;
  /**
   * CIDR ranges that no box may reach: the nodes', the pods' and the services', where those are public addresses. Private, link-local and other ranges that
   * are not the internet are always left out. Default is none.
   */
  readonly blockedRanges?: readonly string[] | undefined;
  /**
   * Whether `public` boxes may be had where the cluster does not enforce network policies: boxes then reach each other and the cluster's own services. Default is
   * `false`: such a cluster is refused.
   */
  readonly sharedNetwork?: boolean | undefined;
  /** The exec sub-protocols that are offered, best first. Default is `["v5.channel.k8s.io", "v4.channel.k8s.io"]`. */
  readonly execProtocols?: readonly string[] | undefined;
}

/** The same with its defaults. */
export interface Settings {
  readonly kubeconfig: string | undefined;
  readonly context: string | undefined;
  readonly namespace: string;
  /** Empty where nobody named one. */
  readonly helperImage: string;
  readonly imagePullSecrets: readonly string[];
  readonly runtimeClass: string | undefined;
  readonly nodeSelector: Readonly<Record<string, string>>;
  readonly tolerations: readonly V1Toleration[];
  readonly priorityClass: string | undefined;
  readonly security: "compat" | "user-namespace";
  readonly scheduleTimeoutMs: number;
  readonly nameservers: readonly string[];
  readonly blockedRanges: readonly string[];
  readonly sharedNetwork: boolean;
  readonly execProtocols: readonly string[];
}

/** The variables of the environment that count; a parameter, so that the rules can be tested. */
export type Environment = Readonly<Record<string, string | undefined>>;

const SCHEDULE_TIMEOUT_MS = 5 * 60 * 1000;
const PUBLIC_RESOLVERS = ["1.1.1.1", "8.8.8.8"] as const;
const EXEC_PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io"] as const;
/** As Kubernetes has it for names of namespaces. */
const NAMESPACE = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/** Throws a `TypeError` with every mistake. */
export function parseOptions(options: K8sDriverOptions, environment: Environment = process.env): Settings {
  const namespace = options.namespace ?? (environment["BREAKWATER_K8S_NAMESPACE"] || "breakwater");
  const nameservers = options.nameservers ?? PUBLIC_RESOLVERS;
  const scheduleTimeoutMs = options.scheduleTimeoutMs ?? SCHEDULE_TIMEOUT_MS;
  const execProtocols = options.execProtocols ?? EXEC_PROTOCOLS;
  const mistakes: string[] = [];
  if (!NAMESPACE.test(namespace)) mistakes.push(`namespace: ${JSON.stringify(namespace)} is not the name of one`);
  if (nameservers.length === 0 || nameservers.length > 3) mistakes.push("nameservers: expected one to three addresses");
  if (!(scheduleTimeoutMs >= 0)) mistakes.push("scheduleTimeoutMs: expected a number of milliseconds");
  for (const name of execProtocols) {
    if (!EXEC_PROTOCOLS.some((known) => known === name))
      mistakes.push(`execProtocols: ${JSON.stringify(name)} is not known`);
  }
  if (execProtocols.length === 0) mistakes.push("execProtocols: expected at least one");
  if (mistakes.length > 0) throw new TypeError(`k8sDriver: ${mistakes.join("; ")}`);
  return {
    kubeconfig: options.kubeconfig,
    context: options.context,
    namespace,
    helperImage: options.helperImage ?? environment["BREAKWATER_HELPER_IMAGE"] ?? "",
    imagePullSecrets: options.imagePullSecrets ?? [],
    runtimeClass: options.runtimeClass,
    nodeSelector: options.nodeSelector ?? {},
    tolerations: options.tolerations ?? [],
    priorityClass: options.priorityClass,
    security: options.security ?? "compat",
    scheduleTimeoutMs,
    nameservers,
    blockedRanges: options.blockedRanges ?? [],
    sharedNetwork: options.sharedNetwork ?? false,
    execProtocols,
  };
}
