import { boxHelperPath } from "@breakwater/box-helper";
import type { ExecOptions, ExecResult } from "@breakwater/runtime-api";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { runExec, type ExecTransport } from "../src/exec-session.ts";
import { streamTransport } from "../src/stream-transport.ts";

/** The helper for this machine. It needs Linux and root; elsewhere it is tried in boxes only. */
export const localHelper: string | null =
  process.platform === "linux" && process.getuid?.() === 0 && (process.arch === "x64" || process.arch === "arm64")
    ? boxHelperPath(process.arch === "x64" ? "amd64" : "arm64")
    : null;

/** `runExec` with the real helper as a child of this process: all of an exec but the backend's connection. */
export function execLocally(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
  const helper = localHelper ?? "";
  return runExec({
    driver: "local",
    boxId: "here",
    request: {
      argv,
      env: { PATH: process.env["PATH"] ?? "", ...options.env },
      cwd: options.cwd ?? "/",
      user: options.user ?? null,
    },
    options,
    deadlineMs: 60_000,
    open: async (execId) => connect(helper, execId),
    killByExec: async (execId) => void (await once(spawn(helper, ["kill", execId], { stdio: "ignore" }), "exit")),
    afterAbnormalEnd: async () => ({ kind: "running", exitCode: null }),
  });
}

function connect(helper: string, execId: string): ExecTransport {
  const { stdin, stdout, stderr } = spawn(helper, ["exec", execId], { stdio: ["pipe", "pipe", "pipe"], cwd: "/" });
  return streamTransport(stdin, stdout, stderr);
}
