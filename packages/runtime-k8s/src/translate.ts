import { createHash } from "node:crypto";
import type { V1Container, V1Pod, V1PodSpec, V1ResourceRequirements } from "@kubernetes/client-node";
import { BOX_HELPER_PATH } from "@breakwater/box-helper";
import { type BoxImage, currentOwner, holdArgv, labelsFor } from "@breakwater/driver-kit";
import type { RuntimeSpec } from "@breakwater/runtime-api";
import type { Settings } from "./options.ts";

/** The container of a pod that is the box. */
export const BOX_CONTAINER = "box";
const HELPER_CONTAINER = "helper";
const HELPER_DIRECTORY = BOX_HELPER_PATH.slice(0, BOX_HELPER_PATH.lastIndexOf("/"));

/** Labels are for selecting: short values of few characters. What we want to know of a pod is in annotations, under the names of driver-kit. */
export const LABEL = {
  managedBy: "app.kubernetes.io/managed-by",
  /** The pod's own name: lists are asked for it. */
  pod: "breakwater.pod",
  owner: "breakwater.owner",
  /** Which network policy selects the pod. */
  network: "breakwater.network",
  role: "breakwater.role",
} as const;
export const MANAGED_BY = "breakwater";

/** Beyond the lifetime, for a driver that died before it could count it: pulling the image counts here. */
const START_ALLOWANCE_SECONDS = 45 * 60;
const GRACE_SECONDS = 1;
/** Without a limit of storage: what one container of a pod may use holds for all of them together. */
const HELPER_RESOURCES: V1ResourceRequirements = {
  requests: { cpu: "50m", memory: "64Mi" },
  limits: { memory: "64Mi" },
};
const HELPER_VOLUME_SIZE = "64Mi";
/** What a box may use of its node's disk when nobody says; above it the pod is evicted, a while later. */
const DEFAULT_STORAGE = "20Gi";
/** What a box without limits asks of the scheduler. */
const DEFAULT_REQUESTS = { cpu: "50m", memory: "64Mi", "ephemeral-storage": "64Mi" } as const;

/** What a pod is to us. */
export interface PodIdentity {
  /** The pod's name. */
  readonly name: string;
  readonly role: "box" | "image" | "canary" | "probe";
  readonly trial: string | null;
  readonly expiresAtMs: number;
  /** The value of the label that network policies go by; with `null` none selects the pod. */
  readonly network: string | null;
}

/** A box in the cluster's words: one pod, one container, our hold as its first process. */
export function boxPod(spec: RuntimeSpec, image: BoxImage, identity: PodIdentity, settings: Settings): V1Pod {
  const usesNames = [spec.network.initial, ...spec.network.later].some(({ mode }) => mode === "public");
  const container: V1Container = {
    name: BOX_CONTAINER,
    image: spec.image,
    imagePullPolicy: "IfNotPresent",
    // `command` replaces ENTRYPOINT, and CMD goes with it.
    command: holdArgv(spec, image).map(literal),
    ...(spec.workdir === null ? {} : { workingDir: spec.workdir }),
    resources: resourcesOf(spec),
    // Our hold is root, whatever the image says; `runAsUser` is what execs of our helper get too.
    securityContext: { runAsUser: 0, runAsGroup: 0, ...RESTRICTIONS },
    volumeMounts: [HELPER_MOUNT],
  };
  return pod(container, identity, settings, {
    activeDeadlineSeconds: Math.ceil(spec.lifetimeMs / 1000) + START_ALLOWANCE_SECONDS,
    ...(usesNames ? namesFrom(settings.nameservers) : NO_NAMES),
  });
}

/** A pod that shows what programs of an image get: it runs our hold as the image's user, with the image's environment. */
export function imagePod(reference: string, identity: PodIdentity, lifetimeMs: number, settings: Settings): V1Pod {
  const container: V1Container = {
    name: BOX_CONTAINER,
    image: reference,
    imagePullPolicy: "IfNotPresent",
    command: [BOX_HELPER_PATH, "hold", "--lifetime-ms", String(lifetimeMs)],
    resources: HELPER_RESOURCES,
    securityContext: RESTRICTIONS,
    volumeMounts: [HELPER_MOUNT],
  };
  return pod(container, identity, settings, {
    activeDeadlineSeconds: Math.ceil(lifetimeMs / 1000) + START_ALLOWANCE_SECONDS,
    ...NO_NAMES,
  });
}

/** A pod of nothing but our helper, for trying what network policies do: `argv` is its first process. */
export function helperPod(
  argv: readonly string[],
  identity: PodIdentity,
  lifetimeMs: number,
  settings: Settings,
): V1Pod {
  const container: V1Container = {
    name: BOX_CONTAINER,
    image: settings.helperImage,
    imagePullPolicy: "IfNotPresent",
    command: ["/helper", ...argv],
    resources: HELPER_RESOURCES,
    securityContext: RESTRICTIONS,
    volumeMounts: [HELPER_MOUNT],
  };
  return pod(container, identity, settings, { activeDeadlineSeconds: Math.ceil(lifetimeMs / 1000), ...NO_NAMES });
}

const HELPER_MOUNT = { name: HELPER_CONTAINER, mountPath: HELPER_DIRECTORY, readOnly: true } as const;

/** No raw sockets: with them a box can speak as another one. `ping` is lost. */
const RESTRICTIONS = {
  privileged: false,
  capabilities: { drop: ["NET_RAW"] },
  seccompProfile: { type: "RuntimeDefault" },
};

const NO_NAMES: Partial<V1PodSpec> = { dnsPolicy: "None", dnsConfig: { nameservers: ["127.0.0.1"] } };

function namesFrom(nameservers: readonly string[]): Partial<V1PodSpec> {
  return { dnsPolicy: "None", dnsConfig: { nameservers: [...nameservers] } };
}

function pod(container: V1Container, identity: PodIdentity, settings: Settings, more: Partial<V1PodSpec>): V1Pod {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: identity.name,
      labels: {
        [LABEL.managedBy]: MANAGED_BY,
        [LABEL.role]: identity.role,
        [LABEL.owner]: ownerKey(),
        ...(identity.network === null ? {} : { [LABEL.network]: identity.network }),
        [LABEL.pod]: identity.name,
      },
      annotations: labelsFor(identity),
    },
    spec: {
      restartPolicy: "Never",
      terminationGracePeriodSeconds: GRACE_SECONDS,
      // What a box must not have: an identity in the cluster, and the names of its services.
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      ...(settings.security === "user-namespace" ? { hostUsers: false } : {}),
      ...(settings.runtimeClass === undefined ? {} : { runtimeClassName: settings.runtimeClass }),
      ...(settings.priorityClass === undefined ? {} : { priorityClassName: settings.priorityClass }),
      ...(Object.keys(settings.nodeSelector).length === 0 ? {} : { nodeSelector: { ...settings.nodeSelector } }),
      ...(settings.tolerations.length === 0 ? {} : { tolerations: [...settings.tolerations] }),
      ...(settings.imagePullSecrets.length === 0
        ? {}
        : { imagePullSecrets: settings.imagePullSecrets.map((name) => ({ name })) }),
      initContainers: [
        {
          name: HELPER_CONTAINER,
          image: settings.helperImage,
          imagePullPolicy: "IfNotPresent",
          command: ["/helper", "install", BOX_HELPER_PATH],
          resources: HELPER_RESOURCES,
          securityContext: {
            runAsUser: 0,
            privileged: false,
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ["ALL"] },
            seccompProfile: { type: "RuntimeDefault" },
          },
          volumeMounts: [{ name: HELPER_CONTAINER, mountPath: HELPER_DIRECTORY }],
        },
      ],
      containers: [container],
      volumes: [{ name: HELPER_CONTAINER, emptyDir: { sizeLimit: HELPER_VOLUME_SIZE } }],
      ...more,
    },
  };
}

/** Requests are limits: the scheduler promises no more than there is. */
function resourcesOf(spec: RuntimeSpec): V1ResourceRequirements {
  const limits: Record<string, string> = {};
  if (spec.cpus !== null) limits["cpu"] = `${Math.max(1, Math.round(spec.cpus * 1000))}m`;
  if (spec.memoryMb !== null) limits["memory"] = `${spec.memoryMb}Mi`;
  if (spec.storageMb !== null) limits["ephemeral-storage"] = `${spec.storageMb}Mi`;
  return {
    limits: { "ephemeral-storage": DEFAULT_STORAGE, ...limits },
    requests: { ...DEFAULT_REQUESTS, ...limits },
  };
}

/** The cluster replaces `$(NAME)` in commands; `$$` stands for `$`. */
export function literal(argument: string): string {
  return argument.replaceAll("$", "$$$$");
}

/** This process in a label: its session, which nobody else has. */
export function ownerKey(): string {
  return createHash("sha256").update(currentOwner().session).digest("hex").slice(0, 16);
}
