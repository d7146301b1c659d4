import { cpus, loadavg, release, totalmem } from "node:os";
import { command } from "./command.ts";

/** Where and from what a committed result comes, as lines of Markdown. */
export async function provenance(): Promise<string> {
  const head = await git("rev-parse", "--short=12", "HEAD");
  const changed = (await git("status", "--porcelain")) === "" ? "" : ", with changes that were not committed";
  const model = cpus()[0]?.model ?? "unknown processor";
  return [
    `* commit: ${head}${changed}`,
    `* begun: ${now()}`,
    `* machine: ${cpus().length} × ${model.trim()}, ${Math.round(totalmem() / 2 ** 30)} GiB, Linux ${release()}, Node ${process.versions.node}`,
    `* load when it began: ${load()}`,
  ].join("\n");
}

export function now(): string {
  return `${new Date().toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

/** Programs that wanted a processor, on average of the last minute. */
export function load(): string {
  return (loadavg()[0] ?? 0).toFixed(1);
}

/** A cell of a table in Markdown. */
export function cell(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll("|", "\\|").trim();
}

async function git(...args: readonly string[]): Promise<string> {
  const { exitCode, stdout } = await command(["git", ...args], { output: "capture", timeoutMs: 60_000 });
  return exitCode === 0 ? stdout.trim() : "unknown";
}
