import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { boxHelperPath } from "@breakwater/box-helper";
import type { DescribeRuntimeOptions } from "@breakwater/conformance/runtime";
import type { Runtime } from "@breakwater/runtime-api";
import { type PackMember, packTar } from "@breakwater/tar";

/** OCI layouts for what one image cannot show: a tar archive of a root file system below, and one small layer. */
export async function fixtureImages(base: string): Promise<DescribeRuntimeOptions["images"]> {
  const folder = join(tmpdir(), `bubblewrap-fixtures-${process.pid}`);
  const image = (
    name: string,
    config: object,
    members: readonly PackMember[],
    layers: readonly string[] = [base],
  ): Promise<string> => writeLayout(join(folder, name), config, members, layers);
  const script = (path: string, content: string): PackMember => ({
    type: "file",
    path,
    mode: 0o755,
    content: `#!/bin/sh\n${content}\n`,
  });
  const record = script("record", `printf '%s\\n' "$@" >/entrypoint-arguments; exec "$@"`);
  const home: PackMember = { type: "directory", path: "home/u", mode: 0o755, uid: 1234, gid: 1234 };
  const helper = await readFile(boxHelperPath(process.arch === "arm64" ? "arm64" : "amd64"));
  return {
    entrypoint: {
      image: await image("entrypoint", { Entrypoint: ["/record"] }, [record]),
      evidence: "/entrypoint-arguments",
    },
    entrypointThatEnds: await image("ends", { Entrypoint: ["/bin/bash"] }, []),
    nonRoot: {
      image: await image("non-root", { User: "1234", WorkingDir: "/home/u" }, [home]),
      uid: 1234,
      workdir: "/home/u",
    },
    path: {
      image: await image("path", { Env: ["PATH=/opt/mine:/usr/bin:/bin"] }, [script("opt/mine/mytool", "exit 0")]),
      program: "mytool",
    },
    noShell: {
      image: await image("no-shell", {}, [{ type: "file", path: "helper", mode: 0o755, content: helper }], []),
      argv: ["/helper", "mounts"],
    },
  };
}

async function writeLayout(
  folder: string,
  config: object,
  members: readonly PackMember[],
  bases: readonly string[],
): Promise<string> {
  const blobs = join(folder, "blobs/sha256");
  await mkdir(blobs, { recursive: true });
  const put = async (content: Uint8Array | string): Promise<string> => {
    const hash = createHash("sha256").update(content).digest("hex");
    await writeFile(join(blobs, hash), content);
    return `sha256:${hash}`;
  };
  const layers: string[] = [];
  for (const base of bases) {
    const hash = createHash("sha256");
    for await (const chunk of createReadStream(base)) hash.update(chunk as Buffer);
    layers.push(`sha256:${hash.digest("hex")}`);
    await symlink(base, join(blobs, layers.at(-1)?.slice(7) ?? ""));
  }
  const own: Uint8Array[] = [];
  for await (const chunk of packTar(members)) own.push(chunk);
  layers.push(await put(Buffer.concat(own)));
  const manifest = await put(
    JSON.stringify({
      config: { digest: await put(JSON.stringify({ config })) },
      layers: layers.map((digest) => ({ mediaType: "application/vnd.oci.image.layer.v1.tar", digest })),
    }),
  );
  await writeFile(join(folder, "index.json"), JSON.stringify({ manifests: [{ digest: manifest }] }));
  return folder;
}

/** Ends a box as a stranger on the host would: kills its first process, which is the only hold of a box's `bwrap`. */
export async function endBox(box: Runtime): Promise<void> {
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    const argv = (await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")).split("\0");
    if (!argv.includes("--as-pid-1") || !argv.some((each) => each.includes(box.id))) continue;
    const children = await readFile(`/proc/${pid}/task/${pid}/children`, "utf8");
    process.kill(Number(children.trim()), "SIGKILL");
    return;
  }
  throw new Error(`${box.id} does not run`);
}
