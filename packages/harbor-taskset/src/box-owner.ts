import { isRuntimeError, type OperationOptions, type Runtime } from "@breakwater/runtime-api";

const MAX_FILE_BYTES = 1024 * 1024;

export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/** The ids of a user of a box, as `exec` would take it; `null` if the box does not know the name. */
export async function ownerInBox(box: Runtime, user: string | null, options: OperationOptions): Promise<Owner | null> {
  if (user === null || user === "") return { uid: 0, gid: 0 };
  return resolveOwner(user, await lines(box, "/etc/passwd", options), await lines(box, "/etc/group", options));
}

/** `user`: a name or an id, with or without `:group`. */
export function resolveOwner(user: string, passwd: readonly string[], group: readonly string[]): Owner | null {
  const [name = "", groupName] = user.split(":");
  const account = passwd
    .map((line) => line.split(":"))
    .find((fields) => fields[0] === name || (isId(name) && fields[2] === name));
  const uid = isId(name) ? Number(name) : toId(account?.[2]);
  if (uid === null) return null;
  if (groupName === undefined) return { uid, gid: toId(account?.[3]) ?? 0 };
  const gid = isId(groupName)
    ? Number(groupName)
    : toId(group.map((line) => line.split(":")).find((fields) => fields[0] === groupName)?.[2]);
  return gid === null ? null : { uid, gid };
}

async function lines(box: Runtime, path: string, options: OperationOptions): Promise<readonly string[]> {
  try {
    const content = await box.readBounded(path, { maxBytes: MAX_FILE_BYTES }, options);
    return content === null ? [] : Buffer.from(content).toString("utf8").split("\n");
  } catch (error) {
    if (isRuntimeError(error, "ERR_LIMIT", "ERR_PATH_KIND", "ERR_PATH_LINK", "ERR_PATH_DENIED")) return [];
    throw error;
  }
}

function isId(text: string): boolean {
  return /^\d{1,10}$/.test(text);
}

function toId(text: string | undefined): number | null {
  return text !== undefined && isId(text) ? Number(text) : null;
}
