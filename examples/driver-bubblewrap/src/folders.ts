import { chown, mkdir, readdir, readFile, rm, rmdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Deadline, type LabelledObject, labelsFor, parseLabels } from "@breakwater/driver-kit";
import { runAsRoot } from "./namespace.ts";

/**
 * What this driver keeps on disk. `images/HASH/` is an unpacked image. `boxes/NAME/` is a box or an image that is being unpacked; `boxes/NAME.json`, which
 * comes first and goes last, has its labels.
 */
export class Folders {
  readonly images: string;
  readonly #boxes: string;
  readonly #rootId: number;

  /** `rootId` is the host's id of the boxes' root. */
  constructor(directory: string, rootId: number) {
    this.images = join(directory, "images");
    this.#boxes = join(directory, "boxes");
    this.#rootId = rootId;
  }

  /** Makes an empty folder that belongs to the boxes' root, and further ones in it. */
  async make(name: string, inside: readonly string[], labels: Parameters<typeof labelsFor>[0]): Promise<string> {
    const path = join(this.#boxes, name);
    for (const folder of [this.#boxes, this.images]) await mkdir(folder, { recursive: true });
    await writeFile(`${path}.json`, JSON.stringify(labelsFor(labels)), { flag: "wx" });
    for (const folder of [path, ...inside.map((each) => join(path, each))]) {
      await mkdir(folder);
      if (process.getuid?.() === 0) await chown(folder, this.#rootId, this.#rootId);
    }
    return path;
  }

  /** Removes a folder and all in it, as the root that it belongs to, until it is gone. Something may still be writing when its owner was just killed. */
  async remove(name: string, clock: Deadline): Promise<void> {
    const path = join(this.#boxes, name);
    while (await readdir(path).catch(() => null)) {
      await runAsRoot(["find", path, "-mindepth", "1", "-delete"], clock)
        .then(() => rmdir(path))
        .catch(() => clock.sleep(50));
    }
    await rm(`${path}.json`, { force: true });
  }

  /** Everything that is wholly labelled. What is not is foreign. */
  async *list(clock: Deadline): AsyncGenerator<LabelledObject, void, undefined> {
    for (const file of await readdir(this.#boxes).catch(() => [])) {
      if (!file.endsWith(".json")) continue;
      const json = readFile(join(this.#boxes, file), "utf8").then(JSON.parse) as Promise<Record<string, string>>;
      const labels = parseLabels(await json.catch(() => null));
      const id = file.slice(0, -".json".length);
      if (labels !== null) yield { kind: labels.role, id, labels, remove: () => this.remove(id, clock) };
    }
  }
}
