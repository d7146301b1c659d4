import { homedir } from "node:os";
import { join } from "node:path";

/** What `bubblewrapDriver` takes. Every key has a default. */
export interface BubblewrapDriverOptions {
  /**
   * Where unpacked images and the files of boxes are kept. Default is `BREAKWATER_BUBBLEWRAP_DIRECTORY`, else `/var/lib/breakwater/bubblewrap` for
   * root and `~/.cache/breakwater/bubblewrap` for everybody else.
   */
  readonly directory?: string | undefined;
  /** For root only: the first of the 65536 ids of the host that boxes run with. Nothing else may use them. Default is 2013265920. */
  readonly firstHostId?: number | undefined;
}

export interface Options {
  readonly directory: string;
  readonly firstHostId: number;
}

/** Fills the defaults, once. Throws a `TypeError` for what cannot be. */
export function parseOptions(given: BubblewrapDriverOptions, isRoot: boolean): Options {
  const usual = isRoot ? "/var/lib/breakwater/bubblewrap" : join(homedir(), ".cache/breakwater/bubblewrap");
  const directory = given.directory ?? process.env["BREAKWATER_BUBBLEWRAP_DIRECTORY"] ?? usual;
  // The kernel takes the folders of an overlay as one text, with these three as its punctuation.
  if (!directory.startsWith("/") || /[:,\\]/.test(directory)) {
    throw new TypeError(
      `directory: expected an absolute path without ":", "," and "\\", got ${JSON.stringify(directory)}`,
    );
  }
  const firstHostId = given.firstHostId ?? 2_013_265_920;
  if (!Number.isSafeInteger(firstHostId) || firstHostId < 65_536 || firstHostId > 2 ** 32 - 65_537) {
    throw new TypeError(`firstHostId: expected a number from 65536 to 4294901759, got ${String(firstHostId)}`);
  }
  return { directory, firstHostId };
}
