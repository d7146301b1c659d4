import { chown, mkdir, readdir, readFile, rm, rmdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Deadline, labelsFor, type ObjectLabels, parseLabels } from "@breakwater/driver-kit";
import { type Ids, runAsRoot } from "./namespace.ts";

/** A folder of ours, with labels beside it that say whose it is. */
export interface LabelledFolder {
  readonly name: string;
  readonly labels: ObjectLabels;
}

/**
 * What this driver keeps on disk. `images/HASH/` is an unpacked image. `boxes/NAME/` is a box or an image that is being unpacked; `boxes/NAME.json`, which comes
 * first and goes last, has its labels.
 */
export class Folders {
  readonly images: string;
  helper = "";
  readonly #boxes: string;

  constructor(directory: string) {
    this.images = join(directory, "images");
    this.#boxes = join(directory, "boxes");
  }

  path(name: string): string {
    return join(this.#boxes, name);
  }

  /** Makes an empty folder that belongs to the boxes' root, and further ones in it. */
  async make(
    name: string,
    inside: readonly string[],
    ids: Ids,
    labels: Parameters<typeof labelsFor>[0],
  ): Promise<string> {
    const path = this.path(name);
    await mkdir(this.#boxes, { recursive: true });
    await mkdir(this.images, { recursive: true });
    await writeFile(`${path}.json`, JSON.stringify(labelsFor(labels)), { flag: "wx" });
    for (const folder of [path, ...inside.map((each) => join(path, each))]) {
      await mkdir(folder);
      if (process.getuid?.() === 0) await chown(folder, ids.root, ids.root);
    }
    return path;
  }

  /** Removes a folder and all in it, as the root that it belongs to. Whatever is missing is fine. */
  async remove(name: string, ids: Ids, clock: Deadline): Promise<void> {
    const path = this.path(name);
    const entries = await readdir(path).catch(() => null);
    if (entries !== null) {
      if (entries.length > 0) await runAsRoot(ids, ["find", path, "-mindepth", "1", "-delete"], clock);
      await rmdir(path);
    }
    await rm(`${path}.json`, { force: true });
  }

  /** Everything that is wholly labelled. What is not is foreign. */
  async list(): Promise<readonly LabelledFolder[]> {
    const found: LabelledFolder[] = [];
    for (const file of await readdir(this.#boxes).catch(() => [])) {
      if (!file.endsWith(".json")) continue;
      const labels = parseLabels(await readFile(join(this.#boxes, file), "utf8").then(parseJson, () => null));
      if (labels !== null) found.push({ name: file.slice(0, -".json".length), labels });
    }
    return found;
  }
}

function parseJson(text: string): Record<string, string> | null {
  try {
    return JSON.parse(text) as Record<string, string>;
  } catch {
    return null;
  }
}
