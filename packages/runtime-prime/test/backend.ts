import { ensureFixtureImages } from "@breakwater/backends/docker/fixtures";
import type { DescribeGradingOptions } from "@breakwater/conformance/grading";
import type { DescribeRuntimeOptions } from "@breakwater/conformance/runtime";
import { fetch } from "undici";

/** What `npm run backends -- prime env` prints; of the service itself `prime-service`, which has no endpoint for tests and no engine. */
const {
  DOCKER_HOST = "",
  BREAKWATER_IMAGE = "",
  BREAKWATER_OTHER_IMAGE = "",
  BREAKWATER_PRIME_ADMIN = "",
  BREAKWATER_PRIME_REACHABLE = "",
  PRIME_API_BASE_URL = "",
  PRIME_API_KEY = "",
} = process.env;
if (PRIME_API_BASE_URL === "" || PRIME_API_KEY === "") {
  throw new Error("PRIME_API_BASE_URL and PRIME_API_KEY are not set; run `npm run conformance -- prime`");
}
const API = `${PRIME_API_BASE_URL.replace(/\/+$/, "").replace(/\/api\/v1$/, "")}/api/v1/sandbox`;
const isEmulator = BREAKWATER_PRIME_ADMIN !== "";

export const image: string = BREAKWATER_IMAGE;
/** With another Python. */
export const otherImage: string = BREAKWATER_OTHER_IMAGE;

const [reachableHost = "", reachablePort = ""] = BREAKWATER_PRIME_REACHABLE.split(":");
/** A server that open boxes reach. */
export const reachable: DescribeGradingOptions["reachable"] =
  reachableHost === "" ? undefined : { host: reachableHost, port: Number(reachablePort) };

/** Without a server to reach it looks at a box's routes, and a VM is cut off by filters. */
export const gradingWaive: DescribeGradingOptions["waive"] =
  reachable === undefined
    ? { "grading.no-network": "https://docs.primeintellect.ai/sandboxes/network-isolation" }
    : undefined;

const BOUNDS = "https://docs.primeintellect.ai/api-reference/sandboxes/sandbox/create-sandbox-endpoint";

/** What the service's own bounds forbid; docs/prime.md says more. */
const waive: Readonly<Record<string, string>> = {
  "limits.cpus": BOUNDS,
  "limits.memory-swap": BOUNDS,
};

/** Further ones of containers: every program takes the image's own shell there, and is kept by our helper, with a folder and a socket for as long as it runs. */
export const waiveContainer: Readonly<Record<string, string>> = {
  ...waive,
  "files.leaves-no-trace": "https://docs.primeintellect.ai/sandboxes/sdk",
  "isolation.no-control-socket": "https://docs.primeintellect.ai/sandboxes/sdk",
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
  if (!isEmulator) return undefined;
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
  readonly terminatedAt?: string | null;
  /** What really runs behind it; the service does not tell. */
  readonly boxRuns?: boolean;
}

/** Every sandbox: on the emulator as it knows them itself. A box's id is its sandbox's name. */
async function sandboxes(): Promise<readonly SeenSandbox[]> {
  const url = isEmulator ? `${BREAKWATER_PRIME_ADMIN}/sandboxes` : `${API}?per_page=1000&labels=breakwater.role%3Dbox`;
  const { sandboxes: found } = (await request("GET", url)) as { readonly sandboxes: readonly SeenSandbox[] };
  return found;
}

async function sandboxNamed(name: string): Promise<SeenSandbox> {
  const found = (await sandboxes()).find((it) => it.name === name);
  if (found === undefined) throw new Error(`there is no sandbox named ${name}`);
  return found;
}

async function request(method: "GET" | "POST" | "DELETE", url: string, body?: unknown): Promise<unknown> {
  const response = await fetch(url, {
    method,
    headers: { authorization: `Bearer ${PRIME_API_KEY}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`${method} ${url} answered ${response.status}: ${await response.text()}`);
  return response.json();
}

/** The account of whom we do not trust to say so himself. */
export const backendRecord: DescribeGradingOptions["backendRecord"] = async () => ({
  boxes: async (trial) =>
    (await sandboxes())
      .filter(({ labels }) => labels.includes(`breakwater.trial=${trial}`))
      .map(({ id, createdAt, terminatedAt, boxRuns }) => ({
        id,
        createdAt: Date.parse(createdAt),
        goneAt: typeof terminatedAt !== "string" || boxRuns === true ? null : Date.parse(terminatedAt),
      })),
  [Symbol.asyncDispose]: async () => {},
});

/** What a stranger does on the service, past the driver: on the emulator as somebody on its machine, else as somebody with our key. */
export const sabotage: DescribeRuntimeOptions["sabotage"] = {
  endBox: async (box) => {
    const { id } = await sandboxNamed(box.id);
    if (isEmulator) await request("POST", `${BREAKWATER_PRIME_ADMIN}/sandboxes/${id}/kill`, {});
    else await request("DELETE", `${API}/${id}`);
  },
  foreignBox: async (ofImage) => {
    const spec = { name: "somebody else's", docker_image: ofImage, vm: false, timeout_minutes: 10 };
    const { id } = (await request("POST", API, spec)) as { readonly id: string };
    const status = async (): Promise<string> => ((await request("GET", `${API}/${id}`)) as SeenSandbox).status;
    while ((await status()) !== "RUNNING") await new Promise((resolve) => setTimeout(resolve, 100));
    return {
      runs: async () => {
        const seen = isEmulator ? (await sandboxes()).find((it) => it.id === id) : undefined;
        return seen?.boxRuns ?? (await status()) === "RUNNING";
      },
      remove: async () => {
        await request("DELETE", `${API}/${id}`);
      },
    };
  },
};
