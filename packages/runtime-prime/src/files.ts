import { readFile } from "node:fs/promises";
import { BOX_HELPER_PATH, type BoxArchitecture, boxHelperPath } from "@breakwater/box-helper";
import { type BoxImage, type Deadline, remembered } from "@breakwater/driver-kit";
import { RuntimeError } from "@breakwater/runtime-api";
import { DRIVER } from "./errors.ts";
import { JOB_FOLDERS } from "./exec.ts";
import type { Gateway } from "./gateway.ts";
import { type CommandResult, type ImageSettings, imageSettingsSchema } from "./schemas.ts";

/** Runs a command of a shell in the box, as root in `/` or as the image says. `isStarting`: the gateway may not know the box yet. */
export type Shell = (
  clock: Deadline,
  command: string,
  as: { readonly asImage: boolean; readonly isStarting: boolean },
) => Promise<CommandResult>;

/** What `uname -m` calls the architectures that the helper is built for. */
const ARCHITECTURES: Readonly<Record<string, BoxArchitecture>> = { x86_64: "amd64", aarch64: "arm64", arm64: "arm64" };
/** Read once for all boxes. */
const PROGRAMS: Readonly<Record<BoxArchitecture, () => Promise<Buffer>>> = {
  amd64: remembered(() => readFile(boxHelperPath("amd64"))),
  arm64: remembered(() => readFile(boxHelperPath("arm64"))),
};
/** Set by the engine or the shell for one program, not by the image. */
const OF_ONE_PROGRAM: ReadonlySet<string> = new Set(["HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_"]);

/** Puts our helper into a box that runs, and asks it what a program of the image gets. The first call waits until the gateway knows the box. */
export async function installHelper(
  { gateway, shell }: { readonly gateway: Gateway; readonly shell: Shell },
  clock: Deadline,
  boxId: string,
): Promise<BoxImage> {
  const folder = BOX_HELPER_PATH.slice(0, BOX_HELPER_PATH.lastIndexOf("/"));
  const fail = (message: string): RuntimeError =>
    new RuntimeError({ code: "ERR_BOX_START", driver: DRIVER, operation: "start", boxId, message });
  const run = async (command: string, asImage = false, isStarting = false): Promise<string> => {
    const result = await shell(clock, command, { asImage, isStarting });
    if (result.exitCode === 0) return result.stdout;
    const said = (result.stderr || result.stdout).trim().slice(0, 300);
    throw fail(`the box runs, and ${JSON.stringify(command)} ended in it with ${result.exitCode}: ${said}`);
  };
  const machine = (await run(`mkdir -p ${folder} && chmod 755 ${folder} && uname -m`, false, true)).trim();
  const architecture = ARCHITECTURES[machine];
  if (architecture === undefined) {
    throw new RuntimeError({
      code: "ERR_IMAGE_UNFIT",
      driver: DRIVER,
      operation: "start",
      boxId,
      message: `the box's machine is ${JSON.stringify(machine)}, and our helper is built for x86_64 and aarch64 only`,
    });
  }
  await gateway.upload(clock, BOX_HELPER_PATH, await PROGRAMS[architecture]());
  await run(`chmod 755 ${BOX_HELPER_PATH} && mkdir -p -m 700 ${JOB_FOLDERS.join(" ")}`);
  return imageOf(imageSettingsSchema.parse(JSON.parse(await run(`exec ${BOX_HELPER_PATH} facts`, true))));
}

/** What our helper's `facts` tell. */
export function imageOf({ uid, gid, cwd, env, user }: ImageSettings): BoxImage {
  const variables = env
    .map((entry): [string, string] => [entry.slice(0, entry.indexOf("=")), entry.slice(entry.indexOf("=") + 1)])
    .filter(([name, value]) => !OF_ONE_PROGRAM.has(name) && !(name === "HOME" && value === user.home));
  const isRoot = uid === 0 && gid === 0;
  return {
    id: "",
    // The service does not tell it, and starts a command of its own in its place.
    entrypoint: [],
    workdir: cwd,
    user: isRoot ? null : gid === user.gid ? String(uid) : `${uid}:${gid}`,
    env: Object.fromEntries(variables),
  };
}
