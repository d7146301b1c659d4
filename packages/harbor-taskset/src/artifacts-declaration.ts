import { isServiceName, MAIN_SERVICE } from "@breakwater/runtime-api";

import type { ArtifactLimits } from "./options.ts";
import type { ArtifactPlan } from "./plan.ts";
import type { ArtifactEntry } from "./task.ts";

/** A problem with a key of the declaration; whoever knows the file adds it. */
export interface KeyProblem {
  readonly key: string;
  readonly message: string;
  readonly advice: string;
}

/** An entry and where it was written. */
export interface DeclaredArtifact extends ArtifactEntry {
  /** For instance `artifacts[1]`. */
  readonly key: string;
}

export interface ArtifactDeclarations {
  readonly entries: readonly DeclaredArtifact[];
  readonly problems: readonly KeyProblem[];
  readonly warnings: readonly KeyProblem[];
}

/** Where an agent may leave things without a declaration: always collected. */
export const CONVENTION_DIRECTORY = "/logs/artifacts";

/** More is a mistake, and every entry costs time. */
const MAX_ENTRIES = 1000;

const ENTRY_KEYS = ["source", "destination", "exclude", "service"];

// ---------------------------------------------------------------------------------------------------------------------------
// One entry: a path, or a table.

/** The entries of a list `artifacts`, from a file or from a caller. `key` is the list's own key. */
export function parseArtifactEntries(values: readonly unknown[], key: string): ArtifactDeclarations {
  const entries: DeclaredArtifact[] = [];
  const problems: KeyProblem[] = [];
  const warnings: KeyProblem[] = [];
  if (values.length > MAX_ENTRIES) {
    problems.push({
      key,
      message: `has ${values.length} entries, more than ${MAX_ENTRIES}`,
      advice: "declare folders instead of single files",
    });
  }

  for (const [index, value] of values.slice(0, MAX_ENTRIES).entries()) {
    const entryKey = `${key}[${index}]`;
    const before = problems.length;
    const problem = (field: string | null, message: string, advice: string): void => {
      problems.push({ key: field === null ? entryKey : `${entryKey}.${field}`, message, advice });
    };

    let table: Readonly<Record<string, unknown>>;
    if (typeof value === "string") {
      table = { source: value };
    } else if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      table = value as Readonly<Record<string, unknown>>;
    } else {
      problem(null, "is neither a path nor a table", 'write "/path" or { source = "/path" }');
      continue;
    }
    for (const unknown of Object.keys(table).filter((name) => !ENTRY_KEYS.includes(name))) {
      warnings.push({
        key: `${entryKey}.${unknown}`,
        message: "is not a key of an artifact and is ignored",
        advice: `known keys: ${ENTRY_KEYS.join(", ")}`,
      });
    }

    const written = table["service"] ?? MAIN_SERVICE;
    const service = typeof written === "string" ? written.trim() : "";
    if (!isServiceName(service)) problem("service", "is no name of a service", "name one of docker-compose.yaml");
    const source = parseSource(table["source"]);
    if (!("reason" in source) && service !== MAIN_SERVICE && !source.path.startsWith("/"))
      problem("source", "is relative, and the working directory of a service is not known", "write an absolute path");
    if ("reason" in source) problem(typeof value === "string" ? null : "source", source.reason, source.advice);
    const destination = parseDestination(table["destination"]);
    if (typeof destination === "object" && destination !== null) {
      problem("destination", destination.reason, destination.advice);
    }
    const exclude = table["exclude"] ?? [];
    if (!isPatternList(exclude)) {
      problem("exclude", "is not a list of patterns", 'write a list of texts, for instance ["*.pyc", "node_modules"]');
    }

    if (problems.length > before || "reason" in source || !isPatternList(exclude)) continue;
    if (source.warning !== null) {
      warnings.push({ key: typeof value === "string" ? entryKey : `${entryKey}.source`, ...source.warning });
    }
    entries.push({
      key: entryKey,
      source: source.path,
      destination: typeof destination === "string" ? destination : null,
      exclude,
      ...(service === MAIN_SERVICE ? {} : { service }),
    });
  }
  return { entries, problems, warnings };
}

interface Reason {
  readonly reason: string;
  readonly advice: string;
}

type Source = Reason | { readonly path: string; readonly warning: Omit<KeyProblem, "key"> | null };

/** Normalises a source and applies the rules about roots. Relative sources are allowed: they are below the working directory. */
function parseSource(value: unknown): Source {
  if (value === undefined) return { reason: "is missing", advice: "name the path in the agent's box" };
  if (typeof value !== "string") return { reason: "is not a text", advice: "name one path" };
  if (value.trim() === "") return { reason: "is empty", advice: "name the path in the agent's box" };
  if (/\p{Cc}/u.test(value)) {
    return { reason: `${JSON.stringify(value)} has a control character`, advice: "name the path without it" };
  }
  if (/^[A-Za-z]:/.test(value) || value.includes("\\")) {
    return { reason: `${JSON.stringify(value)} is no path of a Linux box`, advice: "use / and no drive letters" };
  }
  if (value.split("/").includes("..")) {
    return { reason: `${JSON.stringify(value)} has a ".." in it`, advice: "name the place itself" };
  }
  const parts = value.split("/").filter((part) => part !== "" && part !== ".");
  if (!value.startsWith("/")) return { path: parts.length === 0 ? "." : parts.join("/"), warning: null };
  const path = `/${parts.join("/")}`;
  const reason = refuseRoot(path);
  if (reason !== null) return { reason, advice: "collect something else, or a folder of its own" };
  return { path, warning: doubtRoot(path) };
}

/** What a task would hand to the agent if it travelled: refused with everything above and inside it. */
const TRUSTED = ["/tests", "/logs/verifier", "/.breakwater"];
/** Made by the kernel or lost when a box stops: refused with everything inside. */
const NOT_FILES = ["/proc", "/sys", "/dev", "/run"];
/** Refused themselves, not what is inside. */
const SYSTEM = /^\/(?:logs|etc|usr|bin|sbin|lib[^/]*|boot)?$/;

/** Why an absolute, normalised path cannot be an artifact's root; `null` if it can. */
export function refuseRoot(path: string): string | null {
  for (const trusted of TRUSTED) {
    const relation = relate(path, trusted);
    if (relation === "equal") return `${path} belongs to the verifier`;
    if (relation === "inside") return `${path} is inside ${trusted}, which belongs to the verifier`;
    if (relation === "around") return `${path} contains ${trusted}, which belongs to the verifier`;
  }
  for (const root of NOT_FILES) {
    if (relate(path, root) === "equal" || relate(path, root) === "inside")
      return `${path} is in ${root}, which holds no files that could travel`;
  }
  if (SYSTEM.test(path)) return `${path} as a whole is part of the verifier's own system`;
  return null;
}

function doubtRoot(path: string): Omit<KeyProblem, "key"> | null {
  const system = /^\/(?:etc|usr|bin|sbin|lib[^/]*|boot)\//.exec(path)?.[0];
  if (system === undefined) return null;
  return {
    message: `${path} lies in ${system}: what the agent leaves there replaces files of the verifier's system`,
    advice: "collect it from a folder of its own, for instance by a collect hook into /logs/artifacts",
  };
}

/** `null` = none; an object = why it is refused. */
function parseDestination(value: unknown): string | null | Reason {
  if (value === undefined || value === "") return null;
  const advice = "write a relative path; it is a place below the trial's artifacts/ on the host";
  if (typeof value !== "string") return { reason: "is not a text", advice };
  if (/\p{Cc}/u.test(value)) return { reason: "has a control character", advice };
  if (value.startsWith("/") || /^[A-Za-z]:/.test(value)) return { reason: "is absolute", advice };
  if (value.includes("\\")) return { reason: "has a backslash", advice };
  const parts = value.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.includes("..")) return { reason: 'has a ".." in it', advice };
  if (parts.length === 0) return { reason: "names nothing", advice };
  if (parts.some((part) => Buffer.byteLength(part) > 255))
    return { reason: "has a name of more than 255 bytes", advice };
  if (parts[0] === "manifest.json")
    return { reason: "manifest.json is the list of artifacts itself", advice: "use another name" };
  return parts.join("/");
}

function isPatternList(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((one) => typeof one === "string" && one !== "" && !one.includes("\0"));
}

/** How `path` lies to `other`; both normalised, both absolute or both relative. */
function relate(path: string, other: string): "equal" | "inside" | "around" | "apart" {
  if (path === other) return "equal";
  if (path.startsWith(other === "/" ? "/" : `${other}/`) || other === ".") return "inside";
  if (other.startsWith(path === "/" ? "/" : `${path}/`) || path === ".") return "around";
  return "apart";
}

// ---------------------------------------------------------------------------------------------------------------------------
// The list of a trial.

export interface EffectiveArtifacts {
  readonly artifacts: readonly ArtifactPlan[];
  readonly warnings: readonly KeyProblem[];
}

/**
 * What is collected, in order: the convention folder (unless an entry names it, to give it an `exclude` for instance), the task's
 * entries, the caller's, the step's. Overlapping entries stay, and say with what they overlap. Two that would share a place on the host without
 * sharing it in the box are kept apart there, so that neither's bytes are taken for the other's.
 */
export function effectiveArtifacts(
  task: readonly DeclaredArtifact[],
  trial: readonly DeclaredArtifact[],
  step: readonly DeclaredArtifact[],
  limits: ArtifactLimits,
): EffectiveArtifacts {
  const warnings: KeyProblem[] = [];
  const declared: { readonly entry: DeclaredArtifact; readonly declaredBy: ArtifactPlan["declaredBy"] }[] = [
    ...task.map((entry) => ({ entry, declaredBy: "task" as const })),
    ...trial.map((entry) => ({ entry, declaredBy: "trial" as const })),
    ...step.map((entry) => ({ entry, declaredBy: "step" as const })),
  ];
  if (!declared.some(({ entry }) => entry.source === CONVENTION_DIRECTORY && entry.service === undefined)) {
    const entry = { key: "artifacts", source: CONVENTION_DIRECTORY, destination: null, exclude: [] };
    declared.unshift({ entry, declaredBy: "convention" });
  }

  const placed: { readonly plan: ArtifactPlan; readonly key: string }[] = [];
  for (const { entry, declaredBy } of declared) {
    const twin = placed.find(({ plan }) => isSame(plan, entry));
    if (twin !== undefined) {
      warnings.push({
        key: entry.key,
        message: `${entry.source} is declared twice, as ${twin.key} too, and is collected once`,
        advice: "leave one of the two out",
      });
      continue;
    }

    const taken = placed.find(({ plan }) => {
      const relation = plan.service === entry.service ? "apart" : relate(entry.source, plan.source);
      return relation === "equal" || relation === "around";
    });
    if (taken !== undefined) {
      warnings.push({
        key: entry.key,
        message: `${entry.source} of ${entry.service ?? MAIN_SERVICE} is not collected: ${taken.plan.source} of ${taken.plan.service ?? MAIN_SERVICE} (${taken.key}) has its place`,
        advice: "let the two services leave it at different places",
      });
      continue;
    }

    let place = `artifacts/${entry.destination ?? mirror(entry.source)}`;
    const overlaps: string[] = [];
    for (const { plan, key } of placed) {
      const comparable = plan.source.startsWith("/") === entry.source.startsWith("/");
      const inBox = comparable ? relate(entry.source, plan.source) : "apart";
      const onHost = relate(place, plan.destination);
      const sharesPlace = inBox === onHost && tail(entry.source, plan.source) === tail(place, plan.destination);
      if (inBox !== "apart") {
        overlaps.push(plan.source);
        const covered =
          sharesPlace &&
          plan.service === entry.service &&
          (inBox === "equal"
            ? entry.exclude.join("\0") === plan.exclude.join("\0")
            : inBox === "inside" && plan.exclude.length === 0);
        if (!covered) {
          warnings.push({
            key: entry.key,
            message: `${entry.source} overlaps with ${plan.source} (${key}); each is collected by its own rules, and the verifier gets both`,
            advice: "declare the outer one, or entries that lie apart",
          });
        }
      }
      if (onHost !== "apart" && !sharesPlace) {
        warnings.push({
          key: entry.key,
          message: `its place on the host, ${place}, is taken by ${plan.source} (${key})`,
          advice: "give it another destination; until then it is kept apart from the other one",
        });
        place = `artifacts/entry-${placed.length}/${mirror(entry.source)}`;
      }
    }
    placed.push({
      key: entry.key,
      plan: {
        source: entry.source,
        ...(entry.service === undefined ? {} : { service: entry.service }),
        destination: place,
        exclude: entry.exclude,
        limits,
        declaredBy,
        overlaps,
      },
    });
  }
  return { artifacts: placed.map(({ plan }) => plan), warnings };
}

function isSame(plan: ArtifactPlan, entry: ArtifactEntry): boolean {
  return (
    plan.source === entry.source &&
    plan.service === entry.service &&
    plan.destination === `artifacts/${entry.destination ?? mirror(entry.source)}` &&
    plan.exclude.join("\0") === entry.exclude.join("\0")
  );
}

/** The path in the box as a path below `artifacts/`; never the name of the list of artifacts. */
function mirror(source: string): string {
  const path = source === "." ? "workdir" : source.replace(/^\//, "");
  return path === "manifest.json" || path.startsWith("manifest.json/") ? `root/${path}` : path;
}

/** What the longer of two nested paths has more. */
function tail(a: string, b: string): string {
  const [longer, shorter] = a.length >= b.length ? [a, b] : [b, a];
  return shorter === "." ? longer : longer.slice(shorter.length);
}

/**
 * Makes relative sources absolute below `workdir` (absolute), which is only known with the image where the task sets none. The rules
 * about roots apply again: `problems` not empty means that the trial must not start.
 */
export function resolveArtifacts(
  artifacts: readonly ArtifactPlan[],
  workdir: string,
): { readonly artifacts: readonly ArtifactPlan[]; readonly problems: readonly KeyProblem[] } {
  const problems: KeyProblem[] = [];
  const resolved = artifacts.map((artifact): ArtifactPlan => {
    if (artifact.source.startsWith("/")) return artifact;
    const parts = `${workdir}/${artifact.source}`.split("/").filter((part) => part !== "" && part !== ".");
    const source = `/${parts.join("/")}`;
    const reason = refuseRoot(source);
    if (reason !== null) {
      problems.push({
        key: "artifacts",
        message: `${artifact.source} is relative to the working directory ${workdir}: ${reason}`,
        advice: "collect something else, or a folder of its own",
      });
    }
    return { ...artifact, source };
  });
  const withOverlaps = resolved.map((artifact, index): ArtifactPlan => {
    const earlier = resolved.slice(0, index).filter((other) => relate(artifact.source, other.source) !== "apart");
    return { ...artifact, overlaps: earlier.map((other) => other.source) };
  });
  return { artifacts: withOverlaps, problems };
}
