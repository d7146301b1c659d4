/**
 * `npm run bench -- network`: what the way through the egress gateway costs, beside a direct connection from a public box on the same engine to the same server, in
 * turns. Times are curl's own, from the name to the last byte. On the sealed engine with the fake internet.
 */
import type { NetworkPolicy, Runtime } from "@breakwater/runtime-api";
import { dockerDriver } from "@breakwater/runtime-docker";

const HOST = "example.com";
const DOWNLOAD_BYTES = 256 * 1024 * 1024;

interface Way {
  readonly name: string;
  readonly box: Runtime;
  readonly env: Readonly<Record<string, string>>;
}

/** Seconds of each transfer. */
async function transfer({ box, env }: Way, url: string, count: number): Promise<readonly number[]> {
  const script = `for i in $(seq ${count}); do curl -sS -o /dev/null -w '%{time_total} %{http_code} %{size_download}\\n' '${url}' || exit 1; done`;
  const { exitCode, stdout, stderr } = await box.exec(["bash", "-c", script], { env, timeoutMs: 600_000 });
  if (exitCode !== 0) throw new Error(`${url}: ${Buffer.from(stderr).toString("utf8")}`);
  const lines = Buffer.from(stdout).toString("utf8").trimEnd().split("\n");
  return lines.map((line) => {
    const [seconds, status] = line.split(" ");
    if (status !== "200") throw new Error(`${url}: ${line}`);
    return Number(seconds);
  });
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

/** In turns: whatever else the machine does hits them alike. */
async function compare(
  what: string,
  ways: readonly Way[],
  url: string,
  { rounds, each }: { readonly rounds: number; readonly each: number },
  unit: (seconds: number) => string,
): Promise<void> {
  const times = new Map<string, number[]>(ways.map(({ name }) => [name, []]));
  for (let round = -1; round < rounds; round++) {
    for (const way of ways) {
      const taken = await transfer(way, url, each);
      if (round >= 0) times.get(way.name)?.push(...taken);
    }
  }
  const direct = median(times.get("direct") ?? []);
  for (const [name, taken] of times) {
    const own = median(taken);
    const ratio = name === "direct" ? "" : `   ${(own / direct).toFixed(2)} times the direct one`;
    console.log(`${what.padEnd(24)} ${name.padEnd(18)} ${unit(own)}${ratio}   (${taken.length})`);
  }
}

if (process.env["BREAKWATER_PUBLIC_NAME"] !== HOST) {
  throw new Error("runs on the sealed engine only: npm run bench -- network");
}
const image = process.env["BREAKWATER_IMAGE"] ?? "";
const driver = dockerDriver();
const start = async (initial: NetworkPolicy): Promise<Runtime> => {
  const box = driver.create({ image, network: { initial }, trial: "bench-network" });
  await box.start();
  return box;
};
const boxes: Runtime[] = [];
try {
  const open = await start({ mode: "public" });
  boxes.push(open);
  const listed = await start({ mode: "allowlist", hosts: [HOST] });
  boxes.push(listed);
  const nothing = { http_proxy: "", https_proxy: "", HTTP_PROXY: "", HTTPS_PROXY: "" };
  const ways: readonly Way[] = [
    { name: "direct", box: open, env: {} },
    { name: "gateway", box: listed, env: nothing },
    { name: "gateway as a proxy", box: listed, env: {} },
  ];
  const milliseconds = (seconds: number): string => `${(seconds * 1000).toFixed(1).padStart(8)} ms`;
  const rate = (seconds: number): string => `${(DOWNLOAD_BYTES / 1024 / 1024 / seconds).toFixed(0).padStart(8)} MiB/s`;
  for (const scheme of ["http", "https"]) {
    await compare(`${scheme}, one request`, ways, `${scheme}://${HOST}/`, { rounds: 4, each: 10 }, milliseconds);
    await compare(
      `${scheme}, ${DOWNLOAD_BYTES / 1024 / 1024} MiB`,
      ways,
      `${scheme}://${HOST}/large?bytes=${DOWNLOAD_BYTES}`,
      { rounds: 5, each: 1 },
      rate,
    );
  }
} finally {
  await Promise.all(boxes.map((box) => box.teardownConfirmed()));
  await driver[Symbol.asyncDispose]();
}
