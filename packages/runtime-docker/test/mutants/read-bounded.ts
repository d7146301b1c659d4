import { isRuntimeError, type RuntimeErrorCode } from "@breakwater/runtime-api";
import { type Mutant, onRead } from "./mutant.ts";

const SUCCEEDED = /but it succeeded/;

const unless =
  (code: RuntimeErrorCode, value: Uint8Array | null) =>
  (error: unknown): Uint8Array | null => {
    if (isRuntimeError(error, code)) return value;
    throw error;
  };

export const readBoundedMutants: readonly Mutant[] = [
  {
    id: "read-bounded.exact",
    does: "drops a line feed at the end",
    says: /deep-equal/,
    box: onRead(async (read) => {
      const bytes = await read();
      return bytes?.at(-1) === 10 ? bytes.subarray(0, -1) : bytes;
    }),
  },
  {
    id: "read-bounded.missing",
    does: "gives an empty file for one whose folder is missing",
    says: /strictly equal|null/,
    box: onRead(async (read, path) => (await read()) ?? (path.startsWith("/no/such/") ? new Uint8Array() : null)),
  },
  {
    id: "read-bounded.too-long",
    does: "gives the beginning of a file that is too long",
    says: SUCCEEDED,
    box: onRead((read, _path, { maxBytes }) =>
      maxBytes === 1000 ? read().catch(unless("ERR_LIMIT", new Uint8Array(maxBytes))) : read(),
    ),
  },
  {
    id: "read-bounded.huge",
    does: "reads 200 MiB of a file before it looks at the limit",
    says: /resident memory grew/,
    box: onRead(async (read, path) => {
      const kept = path.startsWith("/tmp/huge-") ? Buffer.alloc(200 * 1024 * 1024, 1) : Buffer.alloc(1);
      return read().finally(() => kept.at(-1));
    }),
  },
  {
    id: "read-bounded.not-a-file",
    does: "takes a FIFO for a file that is missing",
    says: SUCCEEDED,
    box: onRead((read, path) => (path.endsWith("/fifo") ? read().catch(unless("ERR_PATH_KIND", null)) : read())),
  },
  {
    id: "read-bounded.device",
    does: "reads from a device",
    says: SUCCEEDED,
    box: onRead(async (read, path, { maxBytes }) => (path === "/dev/zero" ? new Uint8Array(maxBytes) : read())),
  },
  {
    id: "read-bounded.link",
    does: "follows a link inside the same folder",
    says: SUCCEEDED,
    box: onRead((read, path) => read(path.replace(/\/inside$/, "/target"))),
  },
  {
    id: "read-bounded.link-on-the-way",
    does: "follows a link on the way",
    says: SUCCEEDED,
    box: onRead((read, path) => read(path.replace("/hop/", "/real/"))),
  },
  {
    id: "read-bounded.memory-file-system",
    does: "does not see what is on a memory file system, and says that it is missing",
    says: /strictly equal/,
    box: onRead(async (read, path) => (path.startsWith("/dev/shm/") ? null : read())),
  },
  {
    id: "read-bounded.mistakes",
    does: "takes a relative path as one from the root",
    says: /expected a TypeError, but it succeeded/,
    box: onRead((read, path) => read(path.startsWith("/") ? path : `/${path}`)),
  },
];
