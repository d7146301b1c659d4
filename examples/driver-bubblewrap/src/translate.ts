import type { PreparedImage, RuntimeSpec } from "@breakwater/runtime-api";

/** Where the helper is in every box. */
export const HELPER = "/.breakwater/helper";
const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** What root in a box may do: Docker's list without raw sockets. No SYS_PTRACE: with it root could end our hold. */
const CAPABILITIES =
  "CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT MKNOD AUDIT_WRITE SETFCAP";
const NAMESPACES = "--unshare-pid --unshare-ipc --unshare-uts --unshare-net --unshare-cgroup-try";

/** The host's folders of one box. */
export interface BoxFolders {
  /** The box's own folder. */
  readonly box: string;
  /** The unpacked image. */
  readonly image: string;
  /** A folder with the helper, readable by everybody. */
  readonly helper: string;
}

/** These put the root together in a new mount namespace and go on with the arguments after the two folders. */
const MOUNT_OVERLAY = 'mount -t overlay overlay -o "userxattr,lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"';
const COPY_IMAGE = 'cp -a "$1/." "$2/root"';

export function makeRoot(
  folders: Omit<BoxFolders, "helper">,
  overlay: boolean,
  command: readonly string[],
): readonly string[] {
  const script = `chmod 1777 "$2/shm" && ${overlay ? MOUNT_OVERLAY : COPY_IMAGE} && shift 2 && exec "$@"`;
  return ["sh", "-c", script, "sh", folders.image, folders.box, ...command];
}

/** `bwrap` in a box that is being made: new namespaces, and our hold as their first process. */
export function boxCommand(
  folders: BoxFolders,
  spec: RuntimeSpec,
  image: PreparedImage,
  infoFd: number,
): readonly string[] {
  const env = Object.entries(programEnvironment(spec, image)).flatMap(([name, value]) => ["--setenv", name, value]);
  const entrypoint = spec.entrypoint && image.entrypoint.length > 0;
  const user = entrypoint && image.user !== null ? ["--user", image.user] : [];
  const beside = entrypoint ? ["--cwd", spec.workdir ?? image.workdir ?? "/", "--", ...image.entrypoint] : [];
  const bwrap = [...limit(spec), "bwrap", ...NAMESPACES.split(" "), "--as-pid-1", "--die-with-parent"];
  const hold = [HELPER, "hold", "--lifetime-ms", String(spec.lifetimeMs), ...user, ...beside];
  return [...bwrap, "--hostname", "box", "--info-fd", String(infoFd), ...view(folders), ...env, ...hold];
}

/**
 * Our helper: among the programs of a box that runs, in whose namespaces this is started; or alone over the files of one that has stopped. Descriptor 3 is
 * the box's pid namespace; with it `--die-with-parent` must not be used, as the parent is a process that ends at once.
 */
export function helperCommand(
  folders: BoxFolders,
  spec: RuntimeSpec,
  running: boolean,
  helperArgv: readonly string[],
): readonly string[] {
  const pidNamespace = running ? ["--pidns", "3"] : ["--unshare-pid", "--unshare-net", "--die-with-parent"];
  return [...limit(spec), "bwrap", ...pidNamespace, ...view(folders), HELPER, ...helperArgv];
}

/** A guard against accidents, no limit that is claimed: the kernel counts the processes of each user of a box by itself. */
function limit({ pidsLimit }: RuntimeSpec): readonly string[] {
  return ["prlimit", `--nproc=${pidsLimit}`, "--"];
}

/**
 * What a program of the box sees and may do. Mounts are made anew for each program from the same folders: the box cannot change them, as its root may not
 * mount. `/dev` is new for each program; `/dev/shm` is a folder of the box, like everything else, and outlives it.
 */
function view({ box, helper }: BoxFolders): readonly string[] {
  const root = ["--bind", `${box}/root`, "/", "--proc", "/proc", "--dev", "/dev", "--bind", `${box}/shm`, "/dev/shm"];
  const rights = CAPABILITIES.split(" ").flatMap((name) => ["--cap-add", `CAP_${name}`]);
  const ours = ["--ro-bind", helper, "/.breakwater", "--chdir", "/", "--clearenv", "--new-session"];
  return [...root, ...ours, "--cap-drop", "ALL", ...rights];
}

/** The environment of every program: the image's, then the spec's, then the call's. */
export function programEnvironment(
  spec: RuntimeSpec,
  image: PreparedImage,
  ofCall: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  return { PATH: DEFAULT_PATH, ...image.env, ...spec.env, ...ofCall };
}
