import { execFile, spawnSync } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Runtime } from "@breakwater/runtime-api";
import { dockerDriver } from "@breakwater/runtime-docker";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { assertNoWayOut, notSealed } from "./support/sealed.ts";

/*
 * The clients that tasks are full of, in a box with an allowlist: such as know nothing of proxies, and such as read the proxy variables. Where the proxy is tried the
 * box can resolve no name, so that there is no other way; where it is not, the variables are gone.
 */

vi.setConfig({ testTimeout: 240_000, hookTimeout: 300_000 });

const image = process.env["BREAKWATER_EGRESS_BASE_IMAGE"] ?? "";
const HOSTS = [
  "example.com",
  "pypi.org",
  "files.pythonhosted.org",
  "registry.npmjs.org",
  "deb.debian.org",
  "github.com",
];
const UNSET = "unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY no_proxy NO_PROXY NODE_USE_ENV_PROXY";
const BLIND =
  "echo nameserver 127.0.0.2 >/etc/resolv.conf; if getent hosts example.com; then echo a name was resolved >&2; exit 99; fi";
const NODE_FETCH = `fetch(process.argv[1]).then(async (it) => { console.log(it.status, await it.text()) }, (error) => { console.error(error.cause ?? error); process.exit(1) })`;
const PYTHON = `import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())`;
const GO = `package main

import ("fmt"; "io"; "net/http"; "os"; "time")

func main() {
	client := &http.Client{Timeout: 20 * time.Second}
	answer, err := client.Get(os.Args[1])
	if err != nil { fmt.Fprintln(os.Stderr, err); os.Exit(1) }
	body, _ := io.ReadAll(answer.Body)
	fmt.Println(answer.StatusCode, string(body))
}
`;
const hasGo = spawnSync("go", ["version"]).status === 0;

interface Client {
  readonly name: string;
  readonly script: string;
  readonly says: RegExp;
  /** The same at a host that is not on the list. */
  readonly refused?: string;
  readonly readsProxyVariables: boolean;
}

const clients: readonly Client[] = [
  {
    name: "Node's fetch",
    script: `node -e '${NODE_FETCH}' https://example.com/`,
    says: /Example Domain/,
    refused: `node -e '${NODE_FETCH}' https://example.org/`,
    readsProxyVariables: true,
  },
  {
    name: "openssl s_client",
    script: String.raw`printf 'GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n' | openssl s_client -quiet -verify_return_error -servername example.com -connect example.com:443`,
    says: /Example Domain/,
    refused: "openssl s_client -verify_return_error -servername example.org -connect example.com:443 </dev/null",
    readsProxyVariables: false,
  },
  {
    name: "Python's urllib",
    script: `python3 -c '${PYTHON}' https://example.com/`,
    says: /Example Domain/,
    refused: `python3 -c '${PYTHON}' https://example.org/`,
    readsProxyVariables: true,
  },
  {
    name: "curl",
    script: "curl -sSf --max-time 20 https://example.com/ http://example.com/",
    says: /Example Domain.*Example Domain/s,
    refused: "curl -sSf --max-time 20 https://example.org/",
    readsProxyVariables: true,
  },
  {
    name: "pip",
    script: "cd /tmp; rm -rf tiny*; pip download --no-deps -q tiny && ls tiny*",
    says: /tiny-1\.0-py3-none-any\.whl/,
    readsProxyVariables: true,
  },
  {
    name: "apt",
    script:
      "echo 'deb [trusted=yes] http://deb.debian.org/tiny ./' >/etc/apt/sources.list; apt-get update -q && apt-get install -q -y --reinstall tiny && cat /usr/share/tiny/hello",
    says: /hello from tiny/,
    readsProxyVariables: true,
  },
  {
    name: "npm",
    script:
      "rm -rf /tmp/npm; mkdir /tmp/npm; cd /tmp/npm; npm install --no-audit --no-fund --no-update-notifier tiny && node -p 'require(\"tiny\")()'",
    says: /hello from tiny/,
    readsProxyVariables: true,
  },
  {
    name: "git",
    script: "rm -rf /tmp/tiny; git clone -q https://github.com/example/tiny.git /tmp/tiny && cat /tmp/tiny/README",
    says: /hello from tiny/,
    refused: "git ls-remote https://example.org/example/tiny.git",
    readsProxyVariables: true,
  },
];
const goClient: Client = {
  name: "a Go client",
  script: "/tmp/client https://example.com/",
  says: /200.*Example Domain/s,
  refused: "/tmp/client https://example.org/",
  readsProxyVariables: true,
};

describe.skipIf(notSealed !== null)("[network.clients] in a box with an allowlist", () => {
  const driver = dockerDriver();
  let box: Runtime;

  beforeAll(async () => {
    await assertNoWayOut();
    box = driver.create({ image, network: { initial: { mode: "allowlist", hosts: HOSTS } }, trial: "network-clients" });
    await box.start();
    await run("cp /etc/resolv.conf /tmp/resolv.conf");
    if (hasGo) await box.upload([{ path: "client", content: await buildGoClient(), mode: 0o755 }], "/tmp");
  });
  afterAll(async () => {
    await box[Symbol.asyncDispose]();
    await driver[Symbol.asyncDispose]();
  });

  async function run(script: string): Promise<{ readonly exitCode: number; readonly said: string }> {
    const { exitCode, stdout, stderr } = await box.exec(["bash", "-c", script], { timeoutMs: 120_000 });
    return { exitCode, said: `${Buffer.from(stdout).toString("utf8")}${Buffer.from(stderr).toString("utf8")}` };
  }

  for (const client of [...clients, goClient]) {
    describe.skipIf(client === goClient && !hasGo)(`${client.name}`, () => {
      it("reaches a listed host without knowing of a proxy", async () => {
        const { exitCode, said } = await run(`${UNSET}; cp /tmp/resolv.conf /etc/resolv.conf; ${client.script}`);
        expect(said).toMatch(client.says);
        expect(exitCode).toBe(0);
      });

      it.skipIf(!client.readsProxyVariables)("reaches it by the proxy variables alone", async () => {
        const { exitCode, said } = await run(`${BLIND}; ${client.script}`);
        expect(said).toMatch(client.says);
        expect(exitCode).toBe(0);
      });

      it.skipIf(client.refused === undefined)("reaches no other host, either way", async () => {
        const direct = await run(`${UNSET}; cp /tmp/resolv.conf /etc/resolv.conf; ${client.refused}`);
        expect(direct.exitCode).not.toBe(0);
        const proxied = await run(`cp /tmp/resolv.conf /etc/resolv.conf; ${client.refused}`);
        expect(proxied.exitCode).not.toBe(0);
      });
    });
  }
});

async function buildGoClient(): Promise<Uint8Array> {
  const folder = await mkdtemp(join(tmpdir(), "breakwater-go-"));
  try {
    await writeFile(join(folder, "main.go"), GO);
    const env = { ...process.env, CGO_ENABLED: "0", GO111MODULE: "off", GOFLAGS: "" };
    await promisify(execFile)("go", ["build", "-o", "client", "main.go"], { cwd: folder, env, timeout: 240_000 });
    return await readFile(join(folder, "client"));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
