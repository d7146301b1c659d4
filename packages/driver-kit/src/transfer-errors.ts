import { RuntimeError, type RuntimeErrorCode } from "@breakwater/runtime-api";
import { isTarError } from "@breakwater/tar";

/** What a transfer is a part of, for its errors. */
export interface TransferContext {
  readonly driver: string;
  readonly boxId: string;
  /** The method, for instance `download`. */
  readonly operation: string;
}

export function transferError(
  context: TransferContext,
  code: RuntimeErrorCode,
  message: string,
  more?: { readonly path?: string | undefined; readonly errno?: string | undefined; readonly cause?: unknown },
): RuntimeError {
  return new RuntimeError({ ...more, ...context, code, message });
}

/** An error of the archive that a backend sent as an error of the operation; other errors stay as they are. */
export function archiveError(context: TransferContext, error: unknown): unknown {
  if (!isTarError(error)) return error;
  const code = error.code === "ERR_TAR_LIMIT" ? "ERR_LIMIT" : "ERR_TRANSFER";
  return transferError(context, code, `${error.message}; what arrived cannot be used`, {
    path: error.path,
    cause: error,
  });
}

const CODES: Readonly<Record<string, RuntimeErrorCode>> = {
  ELOOP: "ERR_PATH_LINK",
  ENOTDIR: "ERR_PATH_KIND",
  EISDIR: "ERR_PATH_KIND",
  ENOENT: "ERR_PATH_NOT_FOUND",
  EROFS: "ERR_PATH_DENIED",
  EACCES: "ERR_PATH_DENIED",
  EPERM: "ERR_PATH_DENIED",
  EBUSY: "ERR_PATH_DENIED",
  ENOSPC: "ERR_DISK_FULL",
  EDQUOT: "ERR_DISK_FULL",
};

/** The code for the system's error about a path in a box; `ERR_TRANSFER` for one that says nothing about the path. */
export function codeOfErrno(errno: string): RuntimeErrorCode {
  return CODES[errno] ?? "ERR_TRANSFER";
}
