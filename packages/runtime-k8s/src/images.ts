import { randomBytes } from "node:crypto";
import type { V1Pod } from "@kubernetes/client-node";
import { BOX_HELPER_PATH } from "@breakwater/box-helper";
import type { BoxImage, Deadline } from "@breakwater/driver-kit";
import { type ImageSource, type PreparedImage, type PrepareImageOptions, RuntimeError } from "@breakwater/runtime-api";
import { type Cluster, operate } from "./cluster.ts";
import { DRIVER } from "./errors.ts";
import { ask, StartSlots } from "./exec.ts";
import type { Settings } from "./options.ts";
import { awaitStart, boxStatus, createPod } from "./pods.ts";
import { removeUntilGone } from "./teardown.ts";
import { BOX_CONTAINER, imagePod } from "./translate.ts";

const PREPARE_TIMEOUT_MS = 30 * 60 * 1000;
const REMOVE_TIMEOUT_MS = 60_000;
/** How long a pod that shows an image lives at most, once it runs. */
const IMAGE_POD_LIFETIME_MS = 5 * 60 * 1000;
/** What the cluster adds to the environment of every container. */
const OF_CLUSTER = /^(?:HOSTNAME|KUBERNETES_(?:SERVICE_|PORT).*|KUBERNETES_PORT)$/;

/** What our helper's `facts` says. */
interface Facts {
  readonly uid: number;
  readonly gid: number;
  readonly cwd: string;
  readonly env: readonly string[];
  /** What the image's own files say of the user. */
  readonly user: { readonly gid: number; readonly home: string };
}

/**
 * Images as the cluster has them. Its API tells nothing of an image's settings, so a short pod is run once per image: it pulls the image and shows what
 * programs get. ENTRYPOINT cannot be seen so.
 */
export class Images {
  readonly #cluster: Cluster;
  readonly #settings: Settings;
  readonly #known = new Map<string, Promise<BoxImage>>();

  constructor(cluster: Cluster, settings: Settings) {
    this.#cluster = cluster;
    this.#settings = settings;
  }

  /** What a box of this image gets. Asked once; a failure is asked again. */
  async facts(clock: Deadline, reference: string): Promise<BoxImage> {
    let facts = this.#known.get(reference);
    if (facts === undefined) {
      facts = this.#ask(reference);
      this.#known.set(reference, facts);
      facts.catch(() => this.#known.delete(reference));
    }
    return clock.race(facts);
  }

  /** Throws `ERR_IMAGE_CHANGED` if a pod runs another image than the one that was seen first under this reference. */
  async checkUnchanged(reference: string, pod: V1Pod): Promise<void> {
    const known = await this.#known.get(reference);
    const found = imageId(pod);
    if (known === undefined || known.id === found) return;
    throw new RuntimeError({
      code: "ERR_IMAGE_CHANGED",
      driver: DRIVER,
      operation: "start",
      message: `the node runs ${found} as ${reference}, and it was ${known.id} before; name the image by its digest`,
    });
  }

  async prepare(source: ImageSource, options: PrepareImageOptions = {}): Promise<PreparedImage> {
    if (!("reference" in source)) {
      throw new RuntimeError({
        code: "ERR_UNSUPPORTED",
        driver: DRIVER,
        operation: "prepareImage",
        message: `images cannot be built on a cluster; build ${JSON.stringify(source.name)} and push it to a registry that the cluster reaches, and name that image`,
      });
    }
    const reference = source.reference.trim();
    options.onProgress?.(`looking at ${reference} on the cluster`);
    const doing = { operation: "prepareImage", what: `preparing ${reference}` };
    const image = await operate(options, doing, (clock) => this.facts(clock, reference), PREPARE_TIMEOUT_MS);
    const id = pinned(image.id) ?? reference;
    // The pinned name is the same image.
    this.#known.set(id, Promise.resolve(image));
    return { ...image, id, reference };
  }

  #ask(reference: string): Promise<BoxImage> {
    const doing = { operation: "prepareImage", what: `looking at ${reference}` };
    return operate(undefined, doing, (clock) => this.#askPod(clock, reference), PREPARE_TIMEOUT_MS);
  }

  #parseFacts(answer: string): Facts {
    const facts = JSON.parse(answer || "null") as Partial<Facts> | null;
    if (typeof facts?.uid === "number" && typeof facts.user?.gid === "number") return facts as Facts;
    throw new RuntimeError({
      code: "ERR_IMAGE_UNFIT",
      driver: DRIVER,
      operation: "prepareImage",
      message: `the helper of ${this.#settings.helperImage} does not answer as this version of the driver wants; build the image anew from the @breakwater/box-helper that is installed`,
    });
  }

  async #askPod(clock: Deadline, reference: string): Promise<BoxImage> {
    const name = `breakwater-image-${randomBytes(8).toString("hex")}`;
    const expiresAtMs = Date.now() + PREPARE_TIMEOUT_MS;
    const identity = { name, role: "image", trial: null, expiresAtMs, network: "none" } as const;
    const body = imagePod(reference, identity, IMAGE_POD_LIFETIME_MS, this.#settings);
    const created = await createPod(this.#cluster, "prepareImage", body);
    try {
      const { scheduleTimeoutMs, execProtocols } = this.#settings;
      const running = await awaitStart(this.#cluster, clock, created, { operation: "prepareImage", scheduleTimeoutMs });
      const target = { pod: name, container: BOX_CONTAINER, argv: [BOX_HELPER_PATH, "facts"] };
      const answer = await ask(this.#cluster, target, execProtocols, new StartSlots(), clock);
      return imageOf(imageId(running), this.#parseFacts(answer));
    } finally {
      const doing = { operation: "prepareImage", what: `removing the pod ${name}` };
      const uid = created.metadata?.uid ?? "";
      await operate(undefined, doing, (own) => removeUntilGone(this.#cluster, own, { name, uid }), REMOVE_TIMEOUT_MS);
    }
  }
}

/** An image's settings, from what a program of it got. */
export function imageOf(id: string, facts: Facts): BoxImage {
  const env = facts.env
    .map((entry): [string, string] => {
      const at = entry.indexOf("=");
      return [entry.slice(0, at), entry.slice(at + 1)];
    })
    .filter(
      ([name, value]) => name !== "" && !OF_CLUSTER.test(name) && !(name === "HOME" && value === facts.user.home),
    );
  return {
    id,
    entrypoint: [],
    workdir: facts.cwd === "/" ? null : facts.cwd,
    user: userOf(facts),
    env: Object.fromEntries(env),
  };
}

/** Without the group where it is the user's own. */
function userOf({ uid, gid, user }: Facts): string | null {
  if (gid !== user.gid) return `${uid}:${gid}`;
  return uid === 0 ? null : String(uid);
}

function imageId(pod: V1Pod): string {
  return boxStatus(pod)?.imageID ?? "";
}

/** The name by which exactly this image is pulled again; `null` where the node knows it by its content only, as one that was imported. */
export function pinned(id: string): string | null {
  const name = id.replace(/^docker-pullable:\/\//, "");
  return /^[^@]+@sha256:[0-9a-f]{64}$/.test(name) ? name : null;
}
