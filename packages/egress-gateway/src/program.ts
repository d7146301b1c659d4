// The program in the gateway's container. `serve` is its first process; `control` joins its own input and output with a control session.

import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { controlSocket, Gateway } from "./gateway.ts";
import { systemNetwork } from "./network.ts";
import { BOXES_DIRECTORY, CONTROL_DIRECTORY } from "./paths.ts";

const EXIT_USAGE = 64;
/** The same as that of a box whose lifetime is over. */
const EXIT_LIFETIME = 73;
const EXIT_NO_GATEWAY = 69;
const WATCH_INTERVAL_MS = 1000;
const CONTROL_PATIENCE_MS = 10_000;
const CLOSE_TIMEOUT_MS = 5000;

const [verb, ...args] = process.argv.slice(2);
const { values } = parseOptions();
if (verb === "serve") await serve();
else if (verb === "control") await control();
else usage();

function parseOptions() {
  const options = {
    "lifetime-ms": { type: "string" },
    "orphan-ms": { type: "string" },
    boxes: { type: "string", default: BOXES_DIRECTORY },
    control: { type: "string", default: CONTROL_DIRECTORY },
  } as const;
  try {
    return parseArgs({ args, options });
  } catch {
    return usage();
  }
}

async function serve(): Promise<void> {
  const lifetimeMs = Number(values["lifetime-ms"]);
  const orphanMs = Number(values["orphan-ms"]);
  if (!(lifetimeMs > 0) || !(orphanMs > 0)) usage();

  const gateway = new Gateway({
    boxesDirectory: values.boxes,
    controlDirectory: values.control,
    network: systemNetwork(),
  });
  const end = (code: number): void => {
    setTimeout(() => process.exit(code), CLOSE_TIMEOUT_MS);
    gateway.close().then(
      () => process.exit(code),
      () => process.exit(code),
    );
  };
  // As a container's first process nothing but these ends us.
  process.once("SIGTERM", () => end(0)).once("SIGINT", () => end(0));
  // Nobody knows what is true any more: boxes lose the network and never gain any.
  process.on("uncaughtException", (error) => process.stderr.write(`gateway: ${error.stack}\n`, () => process.exit(1)));
  await gateway.open();
  process.stderr.write("gateway: ready\n");

  const startedAt = performance.now();
  setInterval(() => {
    const isOver = performance.now() - startedAt >= lifetimeMs;
    if (isOver || gateway.orphanedForMs >= orphanMs) {
      process.stderr.write(`gateway: ${isOver ? "the lifetime is over" : "nobody has asked for a long time"}\n`);
      end(EXIT_LIFETIME);
    }
  }, WATCH_INTERVAL_MS);
}

async function control(): Promise<void> {
  const deadline = performance.now() + CONTROL_PATIENCE_MS;
  for (;;) {
    const socket = connect(controlSocket(values.control));
    try {
      await new Promise<void>((resolve, reject) => socket.once("connect", resolve).once("error", reject));
      socket.on("error", () => undefined).once("close", () => process.exit(0));
      process.stdin.pipe(socket);
      socket.pipe(process.stdout);
      return;
    } catch (error) {
      if (performance.now() > deadline) {
        process.stderr.write(`gateway: it does not run here: ${(error as Error).message}\n`);
        process.exit(EXIT_NO_GATEWAY);
      }
      await sleep(50);
    }
  }
}

function usage(): never {
  process.stderr.write(
    "usage: gateway serve --lifetime-ms N --orphan-ms N [--boxes FOLDER] [--control FOLDER] | gateway control [--control FOLDER]\n",
  );
  process.exit(EXIT_USAGE);
}
