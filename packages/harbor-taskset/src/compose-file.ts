import { parseEnv } from "node:util";
import { isMap, isScalar, isSeq, LineCounter, parseDocument } from "yaml";

import { formatKey } from "./key-lines.ts";
import type { TasksetProblem } from "./problems.ts";
import { isTaskFile, readTaskFile, resolveInside } from "./task-folder.ts";

/** The only name that Harbor knows. */
export const COMPOSE_FILE = "docker-compose.yaml";

const MAX_COMPOSE_BYTES = 256 * 1024;
const MAX_ENV_FILE_BYTES = 1024 * 1024;
const MAX_ALIASES = 100;

/** A compose file as it was read: YAML, and the files that it names. What it means is decided when the trial is planned. */
export interface ComposeSource {
  /** Relative to the task's folder. */
  readonly file: string;
  /** The folder that it is in, relative and absolute. */
  readonly folder: string;
  readonly hostFolder: string;
  readonly document: unknown;
  /** Where keys are written. */
  readonly lines: Readonly<Record<string, number>>;
  /** What `env_file` names, by the path as it is written. */
  readonly envFiles: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Paths of the task that the file names as sources of mounts or as build folders, by the path as it is written. */
  readonly paths: Readonly<Record<string, ComposePath>>;
}

export interface ComposePath {
  readonly hostPath: string;
  readonly kind: "file" | "directory";
}

/** Reads the compose file of a folder of the task; `null` if there is none. Mistakes of YAML and of paths go to `problems`. */
export async function readComposeFile(
  taskDirectory: string,
  folder: string,
  problems: TasksetProblem[],
): Promise<ComposeSource | null> {
  const file = `${folder}/${COMPOSE_FILE}`;
  const bytes = await readTaskFile(taskDirectory, file, MAX_COMPOSE_BYTES);
  const hostFolder = await resolveInside(taskDirectory, folder);
  if (bytes === null || hostFolder === null) return null;
  const refuse = (message: string, line?: number): void => {
    problems.push({
      file,
      key: null,
      ...(line === undefined ? {} : { line }),
      message,
      advice: "write a compose file",
    });
  };
  const counter = new LineCounter();
  let document: unknown = null;
  let lines: Record<string, number> = {};
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    const parsed = parseDocument(text, { lineCounter: counter, merge: true, uniqueKeys: true, prettyErrors: false });
    for (const error of parsed.errors.slice(0, 10))
      refuse(`is not YAML: ${error.message}`, counter.linePos(error.pos[0]).line);
    if (parsed.errors.length > 0) return null;
    document = parsed.toJS({ maxAliasCount: MAX_ALIASES });
    // An alias inside of its own anchor has no end.
    if (JSON.stringify(document) === undefined) document = null;
    lines = findLines(parsed.contents, counter);
  } catch (error) {
    // Too many aliases, one that is inside of what it stands for, too deep, or no UTF-8.
    const [reason = ""] = (error instanceof Error ? error.message : String(error)).split("\n");
    refuse(`cannot be read: ${reason}`);
    return null;
  }

  const envFiles: Record<string, Readonly<Record<string, string>>> = {};
  const paths: Record<string, ComposePath> = {};
  for (const written of textsIn(document)) {
    const relative = insideTask(written, folder);
    if (relative === null) continue;
    const hostPath = await resolveInside(taskDirectory, relative).catch(() => null);
    if (hostPath === null) continue;
    const isFile = await isTaskFile(taskDirectory, relative);
    paths[written] = { hostPath, kind: isFile ? "file" : "directory" };
    if (!isFile || !namesEnvFile(document, written)) continue;
    const content = await readTaskFile(taskDirectory, relative, MAX_ENV_FILE_BYTES);
    const variables = parseEnv(Buffer.from(content ?? "").toString("utf8"));
    envFiles[written] = Object.fromEntries(Object.entries(variables).map(([name, value]) => [name, value ?? ""]));
  }
  return { file, folder, hostFolder, document, lines, envFiles, paths };
}

/** A path of the task for what a compose file calls a path; `null` if it cannot be one, or leads out of the task. */
function insideTask(written: string, folder: string): string | null {
  const path = written.replace(/^\$(?:\{CONTEXT_DIR\}|CONTEXT_DIR\b)\/?/, "./");
  if (path === "" || path.includes("$") || path.includes("\0") || path.startsWith("/") || path.startsWith("~"))
    return null;
  const parts: string[] = folder.split("/");
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part !== "..") parts.push(part);
    else if (parts.pop() === undefined) return null;
  }
  return parts.join("/");
}

/** Everything in the document that may be a path: whole texts, and what is before the first colon of a mount. */
function textsIn(value: unknown, found: Set<string> = new Set()): ReadonlySet<string> {
  if (typeof value === "string" && value.length < 4096) {
    found.add(value);
    found.add(value.split(":")[0] ?? value);
  } else if (typeof value === "object" && value !== null) {
    for (const inner of Object.values(value)) textsIn(inner, found);
  }
  return found;
}

function namesEnvFile(document: unknown, written: string): boolean {
  const services = (document as { readonly services?: unknown } | null)?.services;
  if (typeof services !== "object" || services === null) return false;
  return Object.values(services).some((service: unknown) => {
    const named = (service as { readonly env_file?: unknown } | null)?.env_file;
    return named !== undefined && textsIn(named).has(written);
  });
}

function findLines(root: unknown, counter: LineCounter): Record<string, number> {
  const lines: Record<string, number> = {};
  const walk = (node: unknown, path: readonly PropertyKey[]): void => {
    if (isMap(node)) {
      for (const { key, value } of node.items) {
        if (!isScalar(key)) continue;
        const at = [...path, String(key.value)];
        if (key.range) lines[formatKey(at)] = counter.linePos(key.range[0]).line;
        walk(value, at);
      }
    } else if (isSeq(node)) {
      for (const [index, item] of node.items.entries()) {
        const range = (item as { readonly range?: readonly number[] | null } | null)?.range;
        if (range) lines[formatKey([...path, index])] = counter.linePos(range[0] ?? 0).line;
        walk(item, [...path, index]);
      }
    }
  };
  walk(root, []);
  return lines;
}
