import { createHash } from "node:crypto";
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";

import { debian12, debian13, type BaseImage } from "../docker/base-images.ts";
import { buildContext } from "../docker/build-context.ts";
import { runCommand } from "../src/command.ts";
import { engineApi, type EngineApi } from "../src/engine-api.ts";
import { withLock } from "../src/lock.ts";
import { exists } from "../src/packages.ts";
import type { Steps } from "../src/steps.ts";
import { certified } from "./addresses.ts";

/** Files of the fake internet's own certificate authority. It is made once for a cache folder; its key never leaves the machine. */
export interface Authority {
  /** For the clients' list of authorities. */
  readonly authorityFile: string;
  /** Of the fake sites. */
  readonly certificateFile: string;
  readonly keyFile: string;
}

const validDays = "3650";

/**
 * Needs the program `openssl`.
 *
 * Errors: `MISSING_TOOL`, `COMMAND_FAILED`.
 */
export async function ensureAuthority(cacheFolder: string): Promise<Authority> {
  const folder = join(cacheFolder, "network-authority");
  const file = (name: string): string => join(folder, name);
  return await withLock(folder, 60_000, async () => {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    if (!(await exists(file("authority.pem")))) {
      const subject = ["-subj", "/CN=Breakwater test authority"];
      const extensions = [
        "-addext",
        "basicConstraints=critical,CA:TRUE",
        "-addext",
        "keyUsage=critical,keyCertSign,cRLSign",
      ];
      await openssl("req", "-x509", ...newKey, ...subject, ...extensions, "-days", validDays, [
        "-keyout",
        file("authority.key"),
        "-out",
        file("authority.pem.new"),
      ]);
      await rename(file("authority.pem.new"), file("authority.pem"));
    }
    const { names, addresses } = certified();
    const subjects = [...names.map((name) => `DNS:${name}`), ...addresses.map((address) => `IP:${address}`)].join(",");
    const hash = createHash("sha256")
      .update(subjects)
      .update(await readFile(file("authority.pem")))
      .digest("hex");
    const [certificateFile, keyFile] = [file(`sites-${hash.slice(0, 16)}.pem`), file(`sites-${hash.slice(0, 16)}.key`)];
    if (!(await exists(certificateFile))) {
      const request = file("sites.request");
      const extensions = file("sites.extensions");
      await writeFile(extensions, `subjectAltName=${subjects}\nextendedKeyUsage=serverAuth\n`);
      await openssl("req", ...newKey, "-subj", "/CN=sites", ["-keyout", keyFile, "-out", request]);
      await openssl("x509", "-req", "-in", request, "-days", validDays, "-extfile", extensions, "-CAcreateserial", [
        "-CA",
        file("authority.pem"),
        "-CAkey",
        file("authority.key"),
        "-out",
        `${certificateFile}.new`,
      ]);
      await rename(`${certificateFile}.new`, certificateFile);
      await Promise.all([request, extensions].map((path) => rm(path)));
    }
    return { authorityFile: file("authority.pem"), certificateFile, keyFile };
  });
}

const trustLabel = "breakwater.authority";

/** Lets the base images of a sealed engine trust the fake sites, under the names that they have everywhere. Errors: those of the engine. */
export async function ensureTrust(host: string, { authorityFile }: Authority, steps: Steps): Promise<void> {
  const content = await readFile(authorityFile);
  const hash = createHash("sha256").update(content).digest("hex").slice(0, 16);
  const engine = engineApi(host);
  for (const base of [debian12, debian13]) {
    await withLock(`${host} ${base.image}`, 300_000, async () => {
      if ((await trusted(engine, base)) === hash) return;
      const lines = [
        `FROM ${base.image}`,
        "COPY authority.pem /usr/local/share/ca-certificates/breakwater-test.crt",
        "RUN update-ca-certificates",
        `LABEL ${trustLabel}=${hash}`,
      ];
      const files = [
        { name: "Dockerfile", content: `${lines.join("\n")}\n` },
        { name: "authority.pem", content },
      ];
      const query = new URLSearchParams({ t: base.image, rm: "1", forcerm: "1", networkmode: "none" });
      await engine.progress(`/build?${query.toString()}`, Readable.from([buildContext(files)]), { timeoutMs: 300_000 });
      steps.done(`${base.image} trusts the fake sites`);
    });
  }
}

async function trusted(engine: EngineApi, base: BaseImage): Promise<string | undefined> {
  const inspected = (await engine.json("GET", `/images/${base.image}/json`)) as
    | { readonly Config?: { readonly Labels?: Readonly<Record<string, string>> | null } | null }
    | undefined;
  return inspected?.Config?.Labels?.[trustLabel];
}

const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

async function openssl(...args: readonly (string | readonly string[])[]): Promise<void> {
  await runCommand(["openssl", ...args.flat()], { timeoutMs: 30_000 });
}
