import { RuntimeError, type RuntimeErrorCode, type RuntimeErrorDetails } from "@breakwater/runtime-api";

export const DRIVER = "bubblewrap";

/** What an error of this driver is about. */
export interface Subject {
  readonly operation: string;
  readonly boxId?: string | undefined;
}

export function failure(
  { operation, boxId }: Subject,
  code: RuntimeErrorCode,
  message: string,
  more: Partial<RuntimeErrorDetails> = {},
): RuntimeError {
  return new RuntimeError({ ...more, code, driver: DRIVER, operation, boxId, message });
}
