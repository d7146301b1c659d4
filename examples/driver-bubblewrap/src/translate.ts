import { dirname } from "node:path";
import { BOX_HELPER_PATH } from "@breakwater/box-helper";
import { type BoxImage, holdArgv, programEnvironment } from "@breakwater/driver-kit";
import type { RuntimeSpec } from "@breakwater/runtime-api";

/** What root in a box may do: Docker's list without raw sockets. No SYS_PTRACE: with it root could end our hold. */
const CAPABILITIES =
  "CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT MKNOD AUDIT_WRITE SETFCAP";
const NAMESPACES = "--unshare-pid --unshare-ipc --unshare-uts --unshare-net --unshare-cgroup-try";

/** Puts the root together in a new mount namespace, as a copy where the kernel mounts no overlay here. Goes on with the arguments after the two folders. */
const MAKE_ROOT = `chmod 1777 "$2/shm" && {
  mount -t overlay overlay -o "userxattr,lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root" 2>/dev/null || cp -a "$1/." "$2/root"
} && shift 2 && exec "$@"`;

/** Makes a box in its folder, of an image's files: its root, new namespaces, our hold as their first process, whose process id descriptor 3 is told. */
export function boxCommand(box: string, files: string, spec: RuntimeSpec, image: BoxImage): readonly string[] {
  const env = Object.entries(programEnvironment(spec, image)).flatMap(([name, value]) => ["--setenv", name, value]);
  const bwrap = ["bwrap", ...NAMESPACES.split(" "), "--as-pid-1", "--die-with-parent", "--hostname", "box"];
  const command = [...limit(spec), ...bwrap, "--info-fd", "3", ...view(box), ...env, ...holdArgv(spec, image)];
  return ["sh", "-c", MAKE_ROOT, "sh", files, box, ...command];
}

/**
 * A program of ours, over a box's root mounted as the box sees it. Where it joins the pid namespace of a box that runs, `--die-with-parent` must not be used: the parent
 * is a process that ends at once.
 */
export function programCommand(box: string, spec: RuntimeSpec, bwrap: readonly string[]): readonly string[] {
  return [...limit(spec), "bwrap", ...bwrap, ...view(box)];
}

/** A guard against accidents, no limit that is claimed: the kernel counts the processes of each user of a box by itself. */
function limit({ pidsLimit }: RuntimeSpec): readonly string[] {
  return ["prlimit", `--nproc=${pidsLimit}`, "--"];
}

/**
 * What a program of the box sees and may do. Mounts are made anew for each program from the same folders: the box cannot change them, as its root may not
 * mount. `/dev` is new for each program; `/dev/shm` is a folder of the box, like everything else, and outlives it.
 */
function view(box: string): readonly string[] {
  const root = ["--bind", `${box}/root`, "/", "--proc", "/proc", "--dev", "/dev", "--bind", `${box}/shm`, "/dev/shm"];
  const rights = CAPABILITIES.split(" ").flatMap((name) => ["--cap-add", `CAP_${name}`]);
  const ours = ["--ro-bind", `${box}/ours`, dirname(BOX_HELPER_PATH), "--chdir", "/", "--clearenv", "--new-session"];
  return [...root, ...ours, "--cap-drop", "ALL", ...rights];
}
