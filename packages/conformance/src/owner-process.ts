import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { RuntimeSpecInput } from "@breakwater/runtime-api";
import type { DriverModule } from "./options.ts";

const ANSWER_TIMEOUT_MS = 150_000;
const END_TIMEOUT_MS = 60_000;

/** Runs in a process of its own: starts one box, says so, and does what it is told. */
const PROGRAM = `
import { createInterface } from "node:readline";
const [url, spec] = process.argv.slice(1);
const { default: makeDriver } = await import(url);
const driver = makeDriver();
const box = driver.create(JSON.parse(spec));
await box.start();
console.log("started");
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "check") console.log((await box.exec(["true"])).exitCode === 0 ? "alive" : "odd");
  if (line === "end") break;
}
await box.teardownConfirmed();
await driver[Symbol.asyncDispose]();
console.log("ended");
process.stdin.destroy();
`;

/** Another process that owns a box. It can be killed without a chance to clean up. */
export class OwnerProcess {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #exit: Promise<unknown>;

  static async start(driverModule: DriverModule, spec: RuntimeSpecInput): Promise<OwnerProcess> {
    const owner = new OwnerProcess(driverModule, spec);
    await owner.#expect("started");
    return owner;
  }

  private constructor({ url, nodeArguments = [] }: DriverModule, spec: RuntimeSpecInput) {
    this.#child = spawn(
      process.execPath,
      [...nodeArguments, "--input-type=module", "-e", PROGRAM, "--", String(url), JSON.stringify(spec)],
      {
        stdio: ["pipe", "pipe", "inherit"],
        env: { ...process.env, NODE_OPTIONS: "" },
      },
    );
    this.#exit = once(this.#child, "exit");
    if (this.#child.stdout === null) throw new TypeError("the child has no output");
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  /** Its box must still run a program. */
  async check(): Promise<void> {
    this.#child.stdin?.write("check\n");
    await this.#expect("alive");
  }

  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#exit;
  }

  /** It tears its box down and must then end by itself: nothing of a driver keeps a process alive. */
  async end(): Promise<void> {
    try {
      this.#child.stdin?.write("end\n");
      await this.#expect("ended");
      await within(this.#exit, END_TIMEOUT_MS, "the end of a process whose driver is disposed");
    } finally {
      this.#child.kill("SIGKILL");
    }
  }

  async #expect(answer: string): Promise<void> {
    const next = await within(this.#lines.next(), ANSWER_TIMEOUT_MS, `the owner process saying "${answer}"`);
    if (next.done === true || next.value !== answer) {
      assert.fail(
        `the owner process said ${next.done === true ? "nothing more" : JSON.stringify(next.value)} instead of "${answer}"`,
      );
    }
  }
}

async function within<T>(promise: Promise<T>, timeoutMs: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      reject(new assert.AssertionError({ message: `not seen within ${timeoutMs} ms: ${what}` }));
    }, timeoutMs);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
