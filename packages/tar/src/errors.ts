/**
 * - `ERR_TAR_INVALID`: not a plain tar stream, or one that readers would read differently. `ERR_TAR_TRUNCATED`: it ends too early.
 * - `ERR_TAR_LIMIT`: more than the caller allows; `limit` names the option.
 * - `ERR_TAR_SOURCE`: what is to be packed cannot be: a link that leaves its folder, a special file, a file that changed meanwhile.
 */
export type TarErrorCode = "ERR_TAR_INVALID" | "ERR_TAR_TRUNCATED" | "ERR_TAR_LIMIT" | "ERR_TAR_SOURCE";

export interface TarErrorDetails {
  readonly code: TarErrorCode;
  readonly message: string;
  /** The member or the host's file that the error is about. */
  readonly path?: string | undefined;
  readonly limit?: string | undefined;
  readonly cause?: unknown;
}

const BRAND = Symbol.for("breakwater.TarError");

export class TarError extends Error {
  static {
    Object.defineProperty(this.prototype, BRAND, { value: true });
    Object.defineProperty(this.prototype, "name", { value: "TarError", configurable: true, writable: true });
  }

  readonly code: TarErrorCode;
  readonly path: string | undefined;
  readonly limit: string | undefined;

  constructor(details: TarErrorDetails) {
    super(details.message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = details.code;
    this.path = details.path;
    this.limit = details.limit;
  }
}

/** True for a `TarError` of any copy of this package; with `codes`, only for those. */
export function isTarError(value: unknown, ...codes: readonly TarErrorCode[]): value is TarError {
  return (
    typeof value === "object" &&
    value !== null &&
    BRAND in value &&
    (codes.length === 0 || codes.includes((value as unknown as TarError).code))
  );
}
