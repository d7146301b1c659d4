import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";

import { engineApi } from "../src/engine-api.ts";
import { BackendError } from "../src/errors.ts";
import { withLock } from "../src/lock.ts";
import type { Steps } from "../src/steps.ts";
import { debian12 } from "./base-images.ts";

export const nodeImage = "breakwater-test/node:1";
const recipeLabel = "breakwater.node";

/**
 * The Debian 12 image of an engine with the Node that runs this, and with this machine's npm: what the egress gateway is built on where no registry answers,
 * and a box with clients.
 *
 * Errors: `NOT_RUNNING` (the base image is not there), `COMMAND_FAILED`, and those of the engine.
 */
export async function ensureNodeImage(host: string, steps: Steps): Promise<void> {
  const engine = engineApi(host);
  const base = (await engine.json("GET", `/images/${debian12.image}/json`)) as { readonly Id: string } | undefined;
  if (base === undefined) throw new BackendError("NOT_RUNNING", `${host} has no ${debian12.image}`);
  const npm = await npmFolder();
  const lines = [
    `FROM ${debian12.image}`,
    "COPY node /usr/local/bin/",
    "ENV NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt",
    ...(npm === undefined
      ? []
      : [
          "COPY npm /usr/local/lib/node_modules/npm",
          "RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm",
        ]),
  ];
  const hash = createHash("sha256")
    .update([base.Id, process.version, process.arch, npm, ...lines].join("\n"))
    .digest("hex");
  await withLock(`${host} ${nodeImage}`, 300_000, async () => {
    const present = (await engine.json("GET", `/images/${nodeImage}/json`)) as ImageLabels | undefined;
    if (present?.Config?.Labels?.[recipeLabel] === hash) return;
    const folder = await mkdtemp(join(tmpdir(), "breakwater-node-"));
    try {
      await writeFile(join(folder, "Dockerfile"), `${lines.join("\n")}\nLABEL ${recipeLabel}=${hash}\n`);
      const folders = [folder, dirname(process.execPath), ...(npm === undefined ? [] : [dirname(npm)])];
      const members = ["Dockerfile", basename(process.execPath), "npm"];
      const parts = folders.flatMap((path, index) => ["-C", path, members[index] ?? ""]);
      const tar = spawn("tar", ["--dereference", "-cf", "-", ...parts], { stdio: ["ignore", "pipe", "ignore"] });
      const query = new URLSearchParams({ t: nodeImage, rm: "1", forcerm: "1", networkmode: "none" });
      await engine.progress(`/build?${query.toString()}`, tar.stdout, { timeoutMs: 300_000 });
      steps.done(`${nodeImage} built`);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
}

interface ImageLabels {
  readonly Config?: { readonly Labels?: Readonly<Record<string, string>> | null } | null;
}

/** Where the machine's own npm is; not every npm is a folder of that name. */
async function npmFolder(): Promise<string | undefined> {
  for (const folder of (process.env["PATH"] ?? "").split(":")) {
    const program = await realpath(join(folder, "npm")).catch(() => "");
    if (program.endsWith("/npm/bin/npm-cli.js")) return dirname(dirname(program));
  }
  return undefined;
}
