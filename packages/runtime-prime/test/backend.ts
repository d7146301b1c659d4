import { ensureFixtureImages } from "@breakwater/backends/docker/fixtures";
import type { DescribeRuntimeOptions } from "@breakwater/conformance/runtime";
import { fetch } from "undici";

/** What `npm run backends -- prime env` prints. */
const {
  DOCKER_HOST = "",
  BREAKWATER_IMAGE = "",
  BREAKWATER_OTHER_IMAGE = "",
  BREAKWATER_PRIME_ADMIN = "",
  PRIME_API_BASE_URL = "",
  PRIME_API_KEY = "",
} = process.env;
if (BREAKWATER_PRIME_ADMIN === "" || PRIME_API_KEY === "") {
  throw new Error("BREAKWATER_PRIME_ADMIN and PRIME_API_KEY are not set; run `npm run conformance -- prime`");
}

export const image: string = BREAKWATER_IMAGE;
/** With another Python. */
export const otherImage: string = BREAKWATER_OTHER_IMAGE;

const BOUNDS = "https://docs.primeintellect.ai/api-reference/sandboxes/sandbox/create-sandbox-endpoint";

/** What the service's own bounds forbid; docs/prime.md says more. */
const waive: Readonly<Record<string, string>> = {
  "limits.cpus": BOUNDS,
  "limits.memory-swap": BOUNDS,
};

/** Further ones of containers, in which every program takes the image's own shell. */
export const waiveContainer: Readonly<Record<string, string>> = {
  ...waive,
  "exec.box-without-programs": "https://docs.primeintellect.ai/sandboxes/sdk",
  "files.own-tools": "https://docs.primeintellect.ai/sandboxes/sdk",
};

/** Further ones of VMs, whose lifetime counts whole minutes. */
export const waiveVm: Readonly<Record<string, string>> = { ...waive, "leaks.lifetime-without-owner": BOUNDS };

/** For cases in which the owner of a box is another process. */
export function driverModule(path: string): DescribeRuntimeOptions["driverModule"] {
  return { url: new URL(path, import.meta.url), nodeArguments: ["--conditions=@breakwater/source"] };
}

/** The service starts a command of its own in place of an image's ENTRYPOINT, and runs nothing in an image without a shell. */
export async function fixtureImages(): Promise<DescribeRuntimeOptions["images"]> {
  const built = await ensureFixtureImages(DOCKER_HOST, ["non-root", "path"]);
  return {
    nonRoot: { image: built["non-root"], uid: 1234, workdir: "/home/u" },
    path: { image: built.path, program: "mytool" },
  };
}

interface SeenSandbox {
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly labels: readonly string[];
  readonly createdAt: string;
  readonly terminatedAt: string | null;
  readonly boxRuns: boolean;
}

/** Every sandbox as the emulator itself knows it. A box's id is its sandbox's name. */
export async function emulatedSandboxes(): Promise<readonly SeenSandbox[]> {
  const { sandboxes } = (await admin("GET", "/sandboxes")) as { readonly sandboxes: readonly SeenSandbox[] };
  return sandboxes;
}

/** A call to the emulator's own endpoint. */
export async function admin(
  method: "GET" | "POST" | "PATCH" | "DELETE",
  path: string,
  body?: unknown,
): Promise<unknown> {
  return request(method, BREAKWATER_PRIME_ADMIN + path, body);
}

async function request(method: string, url: string, body?: unknown): Promise<unknown> {
  const response = await fetch(url, {
    method,
    headers: { authorization: `Bearer ${PRIME_API_KEY}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`${method} ${url} answered ${response.status}: ${await response.text()}`);
  return response.json();
}

/** What a stranger does on the service, past the driver. */
export const sabotage: DescribeRuntimeOptions["sabotage"] = {
  endBox: async (box) => {
    const found = (await emulatedSandboxes()).find(({ name }) => name === box.id);
    if (found === undefined) throw new Error(`the emulator has no sandbox named ${box.id}`);
    await admin("POST", `/sandboxes/${found.id}/kill`, {});
  },
  foreignBox: async (ofImage) => {
    const api = `${PRIME_API_BASE_URL}/api/v1/sandbox`;
    const spec = { name: "somebody else's", docker_image: ofImage, vm: false, timeout_minutes: 10 };
    const { id } = (await request("POST", api, spec)) as { readonly id: string };
    const seen = async (): Promise<SeenSandbox | undefined> => (await emulatedSandboxes()).find((it) => it.id === id);
    while ((await seen())?.status !== "RUNNING") await new Promise((resolve) => setTimeout(resolve, 100));
    return {
      runs: async () => (await seen())?.boxRuns ?? false,
      remove: async () => {
        await request("DELETE", `${api}/${id}`);
      },
    };
  },
};
