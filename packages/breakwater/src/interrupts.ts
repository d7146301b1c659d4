import { EXIT_INTERRUPTED, EXIT_TERMINATED } from "./exit-codes.ts";

/**
 * Turns Ctrl-C and SIGTERM into one abort. Further signals never interrupt the tearing down of boxes that the first one began;
 * they only say again what is being waited for.
 */
export class Interrupts implements Disposable {
  readonly #controller = new AbortController();
  readonly #say: (line: string) => void;
  #exitCode: number | null = null;

  constructor(say: (line: string) => void) {
    this.#say = say;
    process.on("SIGINT", this.#onSignal);
    process.on("SIGTERM", this.#onSignal);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** What to exit with, or `null` if nobody interrupted. */
  get exitCode(): number | null {
    return this.#exitCode;
  }

  readonly #onSignal = (name: NodeJS.Signals): void => {
    if (this.#exitCode === null) {
      this.#exitCode = name === "SIGINT" ? EXIT_INTERRUPTED : EXIT_TERMINATED;
      this.#say(`${name}: stopping; boxes are being torn down`);
      this.#controller.abort(new Error(`interrupted by ${name}`));
    } else {
      this.#say(`${name}: still tearing down boxes; this has a deadline and is not interrupted`);
    }
  };

  /** Once interrupted, the process is about to end: a further signal until then does not change with what. */
  [Symbol.dispose](): void {
    for (const name of ["SIGINT", "SIGTERM"] as const) {
      process.off(name, this.#onSignal);
      if (this.#exitCode !== null) process.on(name, ignore);
    }
  }
}

function ignore(): void {
  // The first signal has said all.
}
