import { ensureFixtureImages } from "@breakwater/backends/docker/fixtures";
import { networkTargets } from "@breakwater/backends/network/targets";
import type { DescribeRuntimeOptions } from "@breakwater/conformance/runtime";
import Dockerode from "dockerode";

/** What `npm run backends -- docker env` prints, or that of `network`. */
const { DOCKER_HOST = "", BREAKWATER_IMAGE = "", BREAKWATER_OTHER_IMAGE = "", BREAKWATER_HOST_ADDRESS } = process.env;
if (DOCKER_HOST === "" || BREAKWATER_IMAGE === "") {
  throw new Error("DOCKER_HOST and BREAKWATER_IMAGE are not set; run `npm run conformance -- docker`");
}

export const image: string = BREAKWATER_IMAGE;
/** With another Python. */
export const otherImage: string = BREAKWATER_OTHER_IMAGE;

/** Only the sealed engine has servers that boxes may try to reach. */
export const targets: DescribeRuntimeOptions["network"] =
  BREAKWATER_HOST_ADDRESS === undefined ? undefined : networkTargets();

export const DRIVER_MODULE: DescribeRuntimeOptions["driverModule"] = {
  url: new URL("../src/index.ts", import.meta.url),
  nodeArguments: ["--conditions=@breakwater/source"],
};

export async function fixtureImages(): Promise<DescribeRuntimeOptions["images"]> {
  const built = await ensureFixtureImages(DOCKER_HOST, [
    "entrypoint",
    "entrypoint-recording",
    "non-root",
    "path",
    "no-shell",
  ]);
  return {
    entrypoint: { image: built["entrypoint-recording"], evidence: "/entrypoint-arguments" },
    entrypointThatEnds: built.entrypoint,
    nonRoot: { image: built["non-root"], uid: 1234, workdir: "/home/u" },
    path: { image: built.path, program: "mytool" },
    noShell: { image: built["no-shell"], argv: ["/helper", "mounts"] },
  };
}

/** What a stranger does on the engine, past the driver. A box's id is its container's name. */
export const sabotage: DescribeRuntimeOptions["sabotage"] = {
  endBox: async (box) => {
    await new Dockerode().getContainer(box.id).kill({ signal: "SIGKILL" });
  },
  endService: async (box, name) => {
    const engine = new Dockerode();
    const label = [`breakwater.service=${name}`, `breakwater.trial=${box.spec.trial ?? ""}`];
    const [found] = await engine.listContainers({ filters: { label } });
    await engine.getContainer(found?.Id ?? "").kill({ signal: "SIGKILL" });
  },
  foreignBox: async (ofImage) => {
    const container = await new Dockerode().createContainer({
      Image: ofImage,
      Cmd: ["sleep", "600"],
      HostConfig: { NetworkMode: "none" },
    });
    await container.start();
    const unlessGone = async <T>(asked: Promise<T>): Promise<T | undefined> =>
      asked.catch((error: unknown) => {
        if ((error as { readonly statusCode?: number }).statusCode !== 404) throw error;
        return undefined;
      });
    return {
      runs: async () => (await unlessGone(container.inspect()))?.State.Running ?? false,
      remove: async () => {
        await unlessGone(container.remove({ force: true }));
      },
    };
  },
};
