import { spawn } from "node:child_process";
import { expect, onTestFinished, test } from "vitest";
import { command } from "./command.ts";

test("a program that does not end in time is ended, and the result says so", async () => {
  const result = await command(["sh", "-c", "echo begun; exec sleep 20"], { output: "capture", timeoutMs: 200 });
  expect(result).toMatchObject({ timedOut: true, exitCode: 143, stdout: "begun\n" });
});

test("of a long output the end is kept", async () => {
  const result = await command(["sh", "-c", "yes | head -c 1000000; echo last"], {
    output: "capture",
    timeoutMs: 10_000,
  });
  expect(result).toMatchObject({ timedOut: false, exitCode: 0 });
  expect(result.stdout).toHaveLength(256 * 1024);
  expect(result.stdout.endsWith("y\nlast\n")).toBe(true);
});

test("an interrupted script ends its program, lets it finish and runs nothing more", async () => {
  const program = `trap 'echo finished; exit 0' TERM; echo ready; n=0; while [ $n -lt 100 ]; do n=$((n+1)); sleep 0.05; done`;
  const script = `
    const { command } = await import(${JSON.stringify(new URL("command.ts", import.meta.url).href)});
    await command(["sh", "-c", ${JSON.stringify(program)}], { output: "show", timeoutMs: 10_000 });
    console.log("next part");`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
  await new Promise((resolve) => child.stdout.once("data", resolve));
  child.kill("SIGTERM");
  expect(await new Promise((resolve) => child.once("close", resolve))).toBe(143);
  expect(output).toBe("ready\nfinished\n");
});

test("what a daemon holds open is not waited for", async () => {
  const result = await command(["sh", "-c", "sleep 4 & echo started"], { output: "capture", timeoutMs: 10_000 });
  expect(result).toMatchObject({ exitCode: 0, stdout: "started\n" });
  expect(result.durationMs).toBeLessThan(3_000);
});
