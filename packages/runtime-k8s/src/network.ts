import { createHash } from "node:crypto";
import type { V1NetworkPolicy, V1NetworkPolicySpec, V1Pod } from "@kubernetes/client-node";
import { PatchStrategy, setHeaderMiddleware } from "@kubernetes/client-node";
import type { Deadline, HelperContext } from "@breakwater/driver-kit";
import { type NetworkMode, RuntimeError } from "@breakwater/runtime-api";
import type { Cluster } from "./cluster.ts";
import { DRIVER, isStatus } from "./errors.ts";
import type { Settings } from "./options.ts";
import { LABEL, MANAGED_BY } from "./translate.ts";

/** What listens on {@link PORTS} so that policies can be tried; it is selected by none. */
export const CANARY_ROLE = "canary";
/** `public` boxes may connect to the first, nobody to the second. */
export const PORTS = { forPublic: 7001, forNobody: 7002 } as const;

/** Without a policy that allows something nothing is allowed. */
const NONE = "none";

/** What is not the internet, in IPv4. */
const NOT_INTERNET_V4 = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/4",
  "240.0.0.0/4",
] as const;
/** Of IPv6 only this is the internet, without what leads to IPv4 and to examples. */
const INTERNET_V6 = "2000::/3";
const NOT_INTERNET_V6 = ["2001:db8::/32", "2002::/16"] as const;

/** How long the cluster may take to put a policy into force. */
const ENFORCE_TIMEOUT_MS = 30_000;
/** A blocking connect to a refused address takes a second. */
const DIAL_TIMEOUT_MS = 1_500;
const PAUSE_MS = 50;

/** The policies of the namespace and the labels that select them. A policy names no box, so a change of mode is a change of a label. */
export class Policies {
  readonly #cluster: Cluster;
  readonly #publicSpec: V1NetworkPolicySpec;
  /** The value of the label of boxes that are `public`: drivers with other blocked ranges have another one. */
  readonly publicLabel: string;

  constructor(cluster: Cluster, settings: Settings) {
    this.#cluster = cluster;
    const rules = internet(settings.blockedRanges);
    this.publicLabel = `public-${createHash("sha256").update(JSON.stringify(rules)).digest("hex").slice(0, 8)}`;
    this.#publicSpec = {
      podSelector: { matchLabels: { [LABEL.network]: this.publicLabel } },
      policyTypes: ["Egress"],
      egress: [
        { to: rules },
        {
          to: [{ podSelector: { matchLabels: { [LABEL.role]: CANARY_ROLE } } }],
          ports: [{ protocol: "TCP", port: PORTS.forPublic }],
        },
      ],
    };
  }

  /** The label's value for a mode; modes that the driver does not have are refused before. */
  labelFor(mode: NetworkMode): string {
    return mode === "public" ? this.publicLabel : NONE;
  }

  /** Makes the policies that are missing. */
  async ensure(clock: Deadline): Promise<void> {
    // Whoever has the label at all may do nothing.
    const everyone: V1NetworkPolicySpec = {
      podSelector: { matchExpressions: [{ key: LABEL.network, operator: "Exists" }] },
      policyTypes: ["Ingress", "Egress"],
    };
    for (const policy of [
      this.#policy("breakwater-deny", everyone),
      this.#policy(`breakwater-${this.publicLabel}`, this.#publicSpec),
    ]) {
      await this.#ensureOne(clock, policy);
    }
  }

  async #ensureOne(clock: Deadline, body: V1NetworkPolicy): Promise<void> {
    const { namespace } = this.#cluster;
    const name = body.metadata?.name ?? "";
    try {
      await this.#cluster.call(clock, `GET networkpolicies/${name}`, ({ networking }, options) =>
        networking.readNamespacedNetworkPolicy({ name, namespace }, options),
      );
      return;
    } catch (error) {
      if (!isStatus(error, 404)) throw error;
    }
    try {
      await this.#cluster.call(clock, `POST networkpolicies/${name}`, ({ networking }, options) =>
        networking.createNamespacedNetworkPolicy({ namespace, body }, options),
      );
    } catch (error) {
      // Another driver was first.
      if (!isStatus(error, 409)) throw error;
    }
  }

  #policy(name: string, spec: V1NetworkPolicySpec): V1NetworkPolicy {
    return {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name, labels: { [LABEL.managedBy]: MANAGED_BY } },
      spec,
    };
  }

  /** Puts a pod under another policy. */
  async relabel(clock: Deadline, name: string, value: string): Promise<void> {
    const { namespace } = this.#cluster;
    const body = { metadata: { labels: { [LABEL.network]: value } } };
    await this.#cluster.call(clock, `PATCH pods/${name}`, ({ core }, options) =>
      core.patchNamespacedPod(
        { name, namespace, body },
        {
          ...options,
          middleware: [...(options.middleware ?? []), setHeaderMiddleware("Content-Type", PatchStrategy.MergePatch)],
        },
      ),
    );
  }
}

function internet(
  blockedRanges: readonly string[],
): { readonly ipBlock: { readonly cidr: string; readonly except: string[] } }[] {
  const isV6 = (range: string): boolean => range.includes(":");
  return [
    { ipBlock: { cidr: "0.0.0.0/0", except: [...NOT_INTERNET_V4, ...blockedRanges.filter((range) => !isV6(range))] } },
    { ipBlock: { cidr: INTERNET_V6, except: [...NOT_INTERNET_V6, ...blockedRanges.filter(isV6)] } },
  ];
}

/** Which ports of the canary a pod can connect to, as its policy has it. */
export function expectedDials(mode: NetworkMode): readonly { readonly port: number; readonly isOpen: boolean }[] {
  return [
    { port: PORTS.forPublic, isOpen: mode === "public" },
    { port: PORTS.forNobody, isOpen: false },
  ];
}

/** Tries a TCP connection from somewhere; true if there is one. */
export type Dial = (address: string, port: number, clock: Deadline) => Promise<boolean>;

/** The arguments of our helper that try a connection. */
export function probeArgv(address: string, port: number): readonly string[] {
  return ["probe", "tcp", address, String(port), "--timeout-ms", String(DIAL_TIMEOUT_MS)];
}

/** Tries until whoever dials can connect to exactly what the policy allows. False if that never happens. */
export async function becomes(dial: Dial, address: string, mode: NetworkMode, clock: Deadline): Promise<boolean> {
  const endsAt = performance.now() + ENFORCE_TIMEOUT_MS;
  for (;;) {
    let holds = true;
    for (const { port, isOpen } of expectedDials(mode)) holds &&= (await dial(address, port, clock)) === isOpen;
    if (holds) return true;
    if (performance.now() > endsAt) return false;
    await clock.sleep(PAUSE_MS);
  }
}

/** Dials from within a box. */
export function dialFrom(inside: HelperContext): Dial {
  return async (address, port, clock) => {
    const limits = { signal: clock.signal, timeoutMs: ENFORCE_TIMEOUT_MS };
    const { stdout, exitCode } = await inside.runHelper(probeArgv(address, port), limits);
    return parseDial(Buffer.from(stdout).toString("utf8"), `exit code ${exitCode}`, inside.operation);
  };
}

/** Our helper's answer. What is none is an error: a connection that could not be tried was not refused. */
export function parseDial(answer: string, how: string, operation: string): boolean {
  try {
    const { ok } = JSON.parse(answer) as { readonly ok?: unknown };
    if (typeof ok === "boolean") return ok;
  } catch {
    // Below.
  }
  throw new RuntimeError({
    code: "ERR_BACKEND",
    driver: DRIVER,
    operation,
    message: `our helper could not try a connection (${how}): ${answer.slice(0, 300)}; see whether it can run`,
  });
}

export function podAddress(pod: V1Pod): string {
  return pod.status?.podIP ?? "";
}
