import { MAIN_SERVICE, type NetworkPolicy } from "@breakwater/runtime-api";

import { ARTIFACTS_VOLUME, type ComposeMain, HARBORS_IMAGE, planCompose } from "./compose.ts";
import { COMPOSE_FILE, type ComposeSource } from "./compose-file.ts";
import type { PlanOptions } from "./options.ts";
import { type Notes, OPTIONS } from "./plan-notes.ts";
import type { PlannedImage, PlannedService, PlannedSpec } from "./plan.ts";
import type { Task } from "./task.ts";

/** What a compose file adds to a box. */
export interface ComposedBox {
  /** `null`: there is no file. */
  readonly file: string | null;
  readonly main: ComposeMain | null;
  readonly services: readonly PlannedService[];
  /** Values of the host that the file asks for, which are never written down. */
  readonly fromHost: readonly string[];
}

const NOTHING: ComposedBox = { file: null, main: null, services: [], fromHost: [] };

/** `env` is the box's own, resolved; `policies` are all that its network may have. */
export function composeBox(
  source: ComposeSource | null,
  asked: {
    readonly env: Readonly<Record<string, string>>;
    readonly policies: readonly (NetworkPolicy | null)[];
    readonly imageName: string;
    readonly hasSteps?: boolean;
  },
  options: PlanOptions,
  notes: Notes,
): ComposedBox {
  if (source === null) return NOTHING;
  const policies = asked.policies.filter((policy) => policy !== null);
  const hostEnv = options.hostEnv ?? process.env;
  const { main, services, problems, warnings, used } = planCompose(source, {
    variables: { ...hostEnv, ...asked.env },
    isPublic: policies.every(({ mode }) => mode === "public"),
    hasAllowlist: policies.some(({ mode }) => mode === "allowlist"),
    imageName: (service) => `${asked.imageName}-${service}`,
  });
  for (const problem of problems) notes.refuse(problem);
  for (const warning of warnings) notes.warn(warning);
  const sharing = main.volumes.find(({ volume }) => volume === ARTIFACTS_VOLUME);
  if (sharing !== undefined && asked.hasSteps === true) {
    notes.refuse({
      file: source.file,
      key: "services",
      message: `${sharing.path} is shared with a service, and a task with steps empties it between two of them`,
      advice: "hand things over by another volume",
    });
  }
  // What is half understood must not be taken for a mistake in the rest.
  if (problems.length > 0) return { ...NOTHING, file: source.file };
  const fromHost = used.flatMap((name) => (Object.hasOwn(asked.env, name) ? [] : [hostEnv[name] ?? ""]));
  return { file: source.file, main, services, fromHost };
}

/** Hooks and artifacts of services that the agent's box does not have: the same path in that box would be the agent's. */
export function refuseUnknownServices(
  task: Task,
  { file, main, services }: ComposedBox,
  options: PlanOptions,
  notes: Notes,
): void {
  // What the file has is not known where it has problems.
  if (file !== null && main === null) return;
  const names = services.map(({ spec }) => spec.name);
  const known = names.length === 0 ? "there is no service beside the agent's box" : `there are ${names.join(", ")}`;
  const check = (key: string, service: string | undefined): void => {
    if (service === undefined || names.includes(service)) return;
    const message = `${JSON.stringify(service)} is not in environment/${COMPOSE_FILE}: ${known}`;
    if (key.startsWith("--")) notes.refuse({ file: OPTIONS, key, message, advice: "name one of the file" });
    else notes.refuseKey(key, message, "name one of the file");
  };
  for (const [prefix, { artifacts, verifier }] of [
    ["", task] as const,
    ...task.steps.map((step, at) => [`steps[${at}].`, step] as const),
  ]) {
    for (const [at, { service }] of artifacts.entries()) check(`${prefix}artifacts[${at}].service`, service);
    for (const [at, { service }] of verifier.collect.entries())
      check(`${prefix}verifier.collect[${at}].service`, service);
  }
  for (const [at, entry] of (options.artifacts ?? []).entries())
    if (typeof entry !== "string" && entry.service !== MAIN_SERVICE) check(`--artifact[${at}].service`, entry.service);
}

/** The main box's spec with what the file says of it; `task.toml` wins. */
export function withCompose(spec: PlannedSpec, { main }: ComposedBox): PlannedSpec {
  if (main === null) return spec;
  return {
    ...(main.workdir === null ? {} : { workdir: main.workdir }),
    ...spec,
    env: { ...main.env, ...spec.env },
    ...(main.volumes.length === 0 ? {} : { volumes: main.volumes }),
    ...(Object.keys(main.dependsOn).length === 0 ? {} : { dependsOn: main.dependsOn }),
  };
}

/** Of a verifier's box: what the agent handed in is put there by us, and shared with nobody. */
export function withoutSharedArtifacts(composed: ComposedBox): ComposedBox {
  const { main } = composed;
  if (main === null) return composed;
  return { ...composed, main: { ...main, volumes: main.volumes.filter(({ volume }) => volume !== ARTIFACTS_VOLUME) } };
}

/** A service may be made from the main box's image. */
export function servicesWith({ services }: ComposedBox, main: PlannedImage): readonly PlannedService[] {
  return services.map((service) => {
    const isMains = service.image.kind === "declared" && service.image.reference === HARBORS_IMAGE;
    return isMains ? { ...service, image: main } : service;
  });
}

/** The main box's image where the task declares none: the file's, else the folder's own Dockerfile. */
export function composedImage(
  { file, main }: ComposedBox,
  folder: { readonly path: string; readonly hasDockerfile: boolean },
  name: string,
  notes: Notes,
): PlannedImage {
  const image = main?.image ?? null;
  if (image !== null) return image;
  if (file !== null && main !== null && !folder.hasDockerfile) {
    notes.refuse({
      file,
      key: "services.main",
      message: "has neither image nor build, and there is no Dockerfile beside the file",
      advice: "name its image",
    });
  }
  return { kind: "build", context: folder.path, name };
}
