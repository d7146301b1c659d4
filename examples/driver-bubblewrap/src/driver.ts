import { homedir } from "node:os";
import { join } from "node:path";
import { createBox, type Deadline, remembered, sweepObjects, withDeadline } from "@breakwater/driver-kit";
import type * as api from "@breakwater/runtime-api";
import { parseRuntimeSpec, RuntimeError } from "@breakwater/runtime-api";
import { BubblewrapBox } from "./box.ts";
import { Folders } from "./folders.ts";
import { Images } from "./images.ts";
import { runAsRoot } from "./namespace.ts";

/** What `bubblewrapDriver` takes. */
export interface BubblewrapDriverOptions {
  /**
   * Where unpacked images and the files of boxes are kept. Default is `BREAKWATER_BUBBLEWRAP_DIRECTORY`, else `/var/lib/breakwater/bubblewrap` for
   * root and `~/.cache/breakwater/bubblewrap` for everybody else.
   */
  readonly directory?: string | undefined;
}

/** What namespaces enforce. No limits: those need cgroups. No `public` network: that needs a program that carries packets. */
const CAPABILITIES: api.RuntimeCapabilities = Object.freeze({
  networkModes: Object.freeze(["no-network"] as const),
  networkChange: "none",
  allowlistEntries: Object.freeze([]),
  allowlistPorts: Object.freeze([]),
  stop: "halted",
  firstProcess: "ours",
  freeze: "none",
  limits: Object.freeze([]),
  maxCpus: null,
  maxMemoryMb: null,
  gpus: 0,
  users: "any",
  imagePin: "id",
  imageSources: Object.freeze(["reference"] as const),
  services: "none",
  operatingSystems: Object.freeze(["linux"] as const),
  maxLifetimeMs: null,
});

const DRIVER = "bubblewrap";
const TIMEOUT_MS = 30 * 60 * 1000;
const ADVICE = "install bubblewrap and uidmap, add ids to /etc/subuid and /etc/subgid, allow user namespaces";

/** Boxes from Linux namespaces, by bubblewrap. No daemon, and no root needed. Throws a `TypeError` for options that cannot be. */
export function bubblewrapDriver(options: BubblewrapDriverOptions = {}): api.RuntimeDriver {
  const home = process.getuid?.() === 0 ? "/var/lib" : join(homedir(), ".cache");
  const usual = process.env["BREAKWATER_BUBBLEWRAP_DIRECTORY"] ?? join(home, "breakwater/bubblewrap");
  const { directory = usual } = options;
  // The kernel takes the folders of an overlay as one text, with these as its punctuation.
  if (/^\/[^:,\\\s]*$/.test(directory)) return new BubblewrapDriver(directory);
  throw new TypeError(`directory: ${JSON.stringify(directory)} is not absolute, or has a blank, ":", "," or "\\"`);
}

class BubblewrapDriver implements api.RuntimeDriver {
  readonly name: string = DRIVER;
  readonly capabilities: api.RuntimeCapabilities = CAPABILITIES;
  readonly #images: () => Promise<Images>;

  constructor(directory: string) {
    this.#images = remembered(() => this.#within("probe", undefined, (clock) => findImages(directory, clock)));
  }

  async probe(options?: api.OperationOptions): Promise<api.RuntimeCapabilities> {
    await this.#within("probe", options, (clock) => clock.race(this.#images()));
    return CAPABILITIES;
  }

  async *doctor(options?: api.OperationOptions): AsyncGenerator<api.DoctorLine> {
    yield await this.probe(options).then(
      () => ({ status: "ok", what: "bubblewrap makes boxes without network" }) as const,
      (error: unknown) => ({ status: "failed", what: (error as Error).message, advice: ADVICE }) as const,
    );
  }

  create(spec: api.RuntimeSpecInput): api.Runtime {
    const parsed = parseRuntimeSpec(spec);
    const backend = (id: string): BubblewrapBox => new BubblewrapBox(id, parsed, this.#images);
    return createBox({ driver: DRIVER, spec: parsed, probe: (options) => this.probe(options), backend });
  }

  async prepareImage(source: api.ImageSource, options?: api.OperationOptions): Promise<api.PreparedImage> {
    return this.#within("prepareImage", options, async (clock) => {
      if ("context" in source) {
        const message = `${source.name}: images cannot be built here; build it elsewhere and export it`;
        throw new RuntimeError({ code: "ERR_UNSUPPORTED", driver: DRIVER, operation: "prepareImage", message });
      }
      const images = await clock.race(this.#images());
      return { ...(await images.prepare(source.reference, clock)).image, reference: source.reference };
    });
  }

  async sweep(options?: api.SweepOptions): Promise<api.SweepReport> {
    return this.#within("sweep", options, async (clock) => {
      const { folders } = await clock.race(this.#images());
      return sweepObjects(folders.list(clock), clock, options);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing is open: every box has its own processes and handles.
  }

  #within<T>(
    operation: string,
    options: api.OperationOptions | undefined,
    work: (clock: Deadline) => Promise<T>,
  ): Promise<T> {
    return withDeadline(options, TIMEOUT_MS, { driver: DRIVER, operation, what: operation }, work);
  }
}

/** Tries what every box needs. The kernel says which id of the host the boxes' root has. */
async function findImages(directory: string, clock: Deadline): Promise<Images> {
  try {
    const bwrap = "bwrap --unshare-pid --unshare-net --ro-bind / / --proc /proc cat /proc/self/uid_map";
    const idMap = await runAsRoot(bwrap.split(" "), clock);
    return new Images(new Folders(directory, Number(idMap.trim().split(/\s+/)[1])));
  } catch (cause) {
    clock.throwIfOver();
    const message = `boxes cannot be made here: ${(cause as Error).message}; ${ADVICE}`;
    throw new RuntimeError({ code: "ERR_BACKEND_UNAVAILABLE", driver: DRIVER, operation: "probe", message, cause });
  }
}
