import { nopAgent, shellAgent } from "@breakwater/harbor-taskset";
import { afterAll, expect, test } from "vitest";
import { image } from "./support/backend.ts";
import { Stranger } from "./support/engine.ts";
import { dockerHost } from "./support/backend.ts";
import { type Files, type Finished, outcome, taskFile, when, Workbench } from "./support/trials.ts";

/* Services beside a box, in whole trials: whose word counts, in which order, and what becomes of them. */

const workbench = new Workbench();
afterAll(() => workbench[Symbol.asyncDispose]());

/** A witness that keeps what it is told on port 7000, in its memory until a hook asks for it. */
const WITNESS = `
import socket, threading
said = []
server = socket.create_server(("0.0.0.0", 7000))
while True:
    peer, _ = server.accept()
    words = peer.makefile("r").readline().strip()
    if words == "dump":
        peer.sendall("\\n".join(said).encode() + b"\\n")
    else:
        said.append(words)
    peer.close()
`;
const TELL = (words: string): string =>
  `python3 -c 'import socket; s = socket.create_connection(("witness", 7000), 10); s.sendall(b"${words}\\n"); s.recv(1)'`;
const DUMP = `python3 -c 'import socket; s = socket.create_connection(("127.0.0.1", 7000), 10); s.sendall(b"dump\\n"); print(s.makefile("r").read(), end="")'`;

const COMPOSE = `
services:
  main:
    depends_on: { witness: { condition: service_healthy } }
  witness:
    image: ${image}
    command: ["python3", "/witness.py"]
    volumes: ["./witness.py:/witness.py:ro"]
    healthcheck: { test: ["CMD", "sh", "-c", ${JSON.stringify(DUMP)}], interval: 1s, timeout: 10s, retries: 60 }
`;

function task(options: { readonly mode: "shared" | "separate"; readonly test: string; readonly more?: Files }): Files {
  const toml = taskFile({
    mode: options.mode,
    verifier: [
      "[[verifier.collect]]",
      'service = "witness"',
      `command = ${JSON.stringify(`${DUMP} > /var/witness.txt`)}`,
    ],
  });
  return {
    "task.toml": toml.replace("artifacts = []", 'artifacts = [{ source = "/var/witness.txt", service = "witness" }]'),
    "instruction.md": "Tell the witness.\n",
    "environment/docker-compose.yaml": COMPOSE,
    "environment/witness.py": WITNESS,
    "tests/test.sh": `#!/bin/sh\nif ${options.test}; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n`,
    ...options.more,
  };
}

const order = ({ events }: Finished): readonly string[] => events.map(({ type }) => type);
const WITNESSED = 'test "$(cat /var/witness.txt)" = truth';

test("[A3] a witness beside the agent's box is asked when that can do nothing any more, and its word is what travels", async () => {
  const forging = shellAgent(
    `${TELL("truth")} && echo forged >/var/witness.txt && echo 192.0.2.1 witness >>/etc/hosts || true`,
  );
  const trial = await workbench.run(task({ mode: "separate", test: WITNESSED }), { agent: forging });
  expect(outcome(trial)).toBe(1);
  const types = order(trial);
  const stopped = types.indexOf("agent-box.stopped");
  expect(stopped).toBeGreaterThan(0);
  expect(types.indexOf("collect-hook.ended")).toBeGreaterThan(stopped);
  expect(types.indexOf("agent-box.gone")).toBeGreaterThan(types.lastIndexOf("artifact.collected"));
  expect(trial.result.collectHooks).toMatchObject([{ service: "witness", status: "completed", exitCode: 0 }]);
  const manifest = JSON.parse((await trial.file("artifacts/manifest.json")) ?? "[]") as readonly object[];
  expect(manifest).toContainEqual(
    expect.objectContaining({ source: "/var/witness.txt", service: "witness", type: "file", status: "ok" }),
  );

  const silent = await workbench.run(task({ mode: "separate", test: WITNESSED }), { agent: nopAgent() });
  expect(outcome(silent)).toBe(0);
  expect(await leftovers(trial, silent)).toEqual([]);
});

test("[A3] a fresh copy of the agent's environment has fresh services; a verifier of its own has its own", async () => {
  const fresh = task({ mode: "separate", test: `test -z "$(${DUMP})"` });
  expect(outcome(await workbench.run(fresh, { agent: shellAgent(TELL("truth")) }))).toBe(1);

  const own = task({
    mode: "separate",
    test: "true",
    more: {
      "tests/docker-compose.yaml": `services:\n  main: { build: . }\n  ${COMPOSE.slice(COMPOSE.indexOf("witness:\n"))}`,
      "tests/witness.py": WITNESS,
      "tests/Dockerfile": `FROM ${image}\nCOPY test.sh /tests/test.sh\n`,
      "tests/test.sh": `#!/bin/sh\n${TELL("verifier")}; test "$(${DUMP})" = verifier && ${WITNESSED} && echo 1 >/logs/verifier/reward.txt\n`,
    },
  });
  expect(outcome(await workbench.run(own, { agent: shellAgent(TELL("truth")) }))).toBe(1);
});

test("in shared mode the services go on while the tests run", async () => {
  const shared = task({ mode: "shared", test: `test "$(${DUMP})" = truth` });
  const trial = await workbench.run(shared, { agent: shellAgent(TELL("truth")) });
  expect([outcome(trial), trial.result.collectHooks.map(({ status }) => status)]).toEqual([1, ["completed"]]);
});

test("a service that somebody kills is no verdict; one that the task lets end is none of our business", async () => {
  const killing = when("agent.started", async ({ trial }) => {
    const engine = new Stranger(dockerHost);
    const filters = JSON.stringify({ label: ["breakwater.service=witness", `breakwater.trial=${trial}`] });
    const found = await engine.call("GET", `/containers/json?filters=${encodeURIComponent(filters)}`);
    const [{ Id: id }] = found as readonly [{ readonly Id: string }];
    await engine.call("POST", `/containers/${id}/kill`);
  });
  const lost = await workbench.run(task({ mode: "separate", test: WITNESSED }), {
    agent: async ({ box }) => {
      await killing.acted();
      await box.exec(["true"]);
    },
    onEvent: killing.onEvent,
  });
  expect([outcome(lost), lost.result.rewards]).toEqual(["infrastructure ERR_NETWORK_LOST", null]);
  expect(await leftovers(lost)).toEqual([]);
});

test("what a compose file asks for and cannot have is said by its key before anything starts", async () => {
  const files = task({ mode: "separate", test: "true" });
  const bad = {
    ...files,
    "environment/docker-compose.yaml": `${COMPOSE}    privileged: true\n    network_mode: host\n`,
  };
  const refused = await workbench.run(bad, { agent: nopAgent() }).then(
    () => null,
    (error: unknown) => error as { readonly problems: readonly { readonly file: string; readonly key: string }[] },
  );
  expect(refused?.problems.map(({ file, key }) => `${file}: ${key}`)).toEqual([
    "environment/docker-compose.yaml: services.witness.privileged",
    "environment/docker-compose.yaml: services.witness.network_mode",
  ]);
});

/** What the engine still has of these trials. */
async function leftovers(...trials: readonly Finished[]): Promise<readonly string[]> {
  const names = new Set(trials.map(({ result }) => result.trial));
  const report = await workbench.driver.sweep({ dryRun: true });
  return [...report.kept, ...report.removed, ...report.failed]
    .filter(({ trial }) => trial !== null && names.has(trial))
    .map(({ kind, id }) => `${kind} ${id}`);
}
