/** Every trial has rewards, or the command did what it was asked. */
export const EXIT_OK = 0;
/** Some trial has no reward, or something is left or broken. */
export const EXIT_NO_REWARD = 1;
/** Wrong usage, an invalid task, or a plan that cannot be run: nothing was started. */
export const EXIT_USAGE = 2;
/** Ended by Ctrl-C (128 + SIGINT). */
export const EXIT_INTERRUPTED = 130;
/** Ended by SIGTERM (128 + 15). */
export const EXIT_TERMINATED = 143;

/** A mistake of the caller: printed without a stack, exit code 2. */
export class UsageError extends Error {
  static {
    this.prototype.name = "UsageError";
  }
}
