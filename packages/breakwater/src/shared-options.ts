import { parseAllowlistEntry } from "@breakwater/runtime-api";
import { InvalidArgumentError, Option } from "commander";

/** `-e` is Harbor's name for it. */
export function runtimeOption(): Option {
  return new Option("-e, --runtime <driver>", "docker, a driver's package name, or the path of one").default("docker");
}

/** Where the caller stands: npm scripts run in the project's root and say where they were called from. */
export function workingDirectory(): string {
  return process.cwd();
}

export function wholeNumber(minimum: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || !Number.isSafeInteger(value) || value < minimum) {
      throw new InvalidArgumentError(`Expected a whole number of at least ${minimum}.`);
    }
    return value;
  };
}

export function positiveNumber(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value) || value <= 0)
    throw new InvalidArgumentError("Expected a number above 0.");
  return value;
}

/** For options that may be given several times. */
export function collect<T>(
  parse: (text: string) => T,
): (text: string, before: readonly T[] | undefined) => readonly T[] {
  return (text, before) => [...(before ?? []), parse(text)];
}

/** A code of an error, as results have it. */
export function errorCode(text: string): string {
  if (!/^ERR_[A-Z_]+$/.test(text)) throw new InvalidArgumentError("Expected a code like ERR_BOX_LOST.");
  return text;
}

/** `NAME=value`; the value may be empty and may contain `=`. */
export function assignment(text: string): readonly [name: string, value: string] {
  const at = text.indexOf("=");
  if (at < 1) throw new InvalidArgumentError("Expected NAME=value.");
  return [text.slice(0, at), text.slice(at + 1)];
}

/** A host name, `*.example.com`, an address or a network: as in a task's `allowed_hosts`. */
export function allowlistEntry(text: string): string {
  try {
    return parseAllowlistEntry(text).host;
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message);
  }
}
