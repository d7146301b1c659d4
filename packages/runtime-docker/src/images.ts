import { createHash, type Hash } from "node:crypto";
import { join } from "node:path";
import { Readable } from "node:stream";
import {
  type ImageSource,
  type PreparedImage,
  type PrepareImageOptions,
  RuntimeError,
  type RuntimeErrorCode,
} from "@breakwater/runtime-api";
import { type BoxImage, boxImage, type Deadline } from "@breakwater/driver-kit";
import { isTarError } from "@breakwater/tar";
import { type BuildDefinition, buildTag, contentHash, finishHash, packContext, readBuildDefinition } from "./build.ts";
import { type Engine, operate } from "./engine.ts";
import { DRIVER, EngineError, isStatus, toRuntimeError } from "./errors.ts";
import { registryAuthHeader, type RegistryLogin, registryLogin } from "./registry-auth.ts";
import type { ImageInspection } from "./translate.ts";

type BuildSource = Exclude<ImageSource, { readonly reference: string }>;

const PULL_TIMEOUT_MS = 30 * 60 * 1000;
const BUILD_TIMEOUT_MS = 60 * 60 * 1000;
/** On images that we built: what they were called. */
const BUILD_LABEL = "breakwater.build";
const LOG_TAIL_BYTES = 4096;
const MAX_PROGRESS_LINE_BYTES = 1024 * 1024;

/** Images of one engine: looked up every time (an image may go at any moment), pulled and built once at a time. */
export class Images {
  readonly #engine: Engine;
  readonly #registryConfigPath: string;
  readonly #underWay = new Map<string, Promise<void>>();

  constructor(engine: Engine, registryConfigPath: string) {
    this.#engine = engine;
    this.#registryConfigPath = registryConfigPath;
  }

  async prepare(source: ImageSource, options?: PrepareImageOptions): Promise<PreparedImage> {
    if ("context" in source) return this.#prepareBuild(source, options);
    const doing = {
      operation: "prepareImage",
      what: `preparing the image ${source.reference}`,
      subject: "image",
    } as const;
    return operate(
      options,
      doing,
      async (clock) => {
        const image = await this.findOrPull(clock, source.reference, options?.onProgress);
        return { ...image, reference: source.reference };
      },
      PULL_TIMEOUT_MS,
    );
  }

  async #prepareBuild(source: BuildSource, options?: PrepareImageOptions): Promise<PreparedImage> {
    const definition = await readBuildDefinition(source);
    const doing = { operation: "prepareImage", what: `building the image ${source.name}`, subject: "image" } as const;
    return operate(
      options,
      doing,
      async (clock) => {
        const baseIds = await this.#baseIds(clock, definition);
        const tag = buildTag(definition.name, await contentHash(definition, baseIds));
        const image = (await this.find(clock, tag)) ?? (await this.#build(clock, definition, tag, options?.onProgress));
        return { ...image, reference: tag };
      },
      BUILD_TIMEOUT_MS,
    );
  }

  /** Builds an image, once for all who ask for the same content at the same time. */
  async #build(
    clock: Deadline,
    definition: BuildDefinition,
    tag: string,
    onProgress?: (line: string) => void,
  ): Promise<BoxImage> {
    await clock.race(this.once(`build ${tag}`, () => this.#buildOnce(definition, tag, onProgress)));
    const image = await this.find(clock, tag);
    if (image !== null) return image;
    throw this.#error("ERR_IMAGE_BUILD", `${tag} was built, and the engine does not have it; see the engine's log`);
  }

  async #buildOnce(definition: BuildDefinition, tag: string, onProgress?: (line: string) => void): Promise<void> {
    const doing = {
      operation: "prepareImage",
      what: `building the image ${definition.name}`,
      subject: "image",
    } as const;
    const log = new LogTail();
    await operate({ timeoutMs: BUILD_TIMEOUT_MS }, doing, async (clock) => {
      try {
        const hash = createHash("sha256");
        const response = await this.#engine.send(clock.signal, {
          method: "POST",
          path: "/build",
          query: {
            t: tag,
            dockerfile: definition.dockerfile,
            rm: true,
            forcerm: true,
            labels: { [BUILD_LABEL]: definition.name },
          },
          headers: await this.#loginsForBuild(definition),
          file: Readable.from(packContext(definition, hash), { objectMode: false }),
        });
        await followProgress(response, (line) => {
          log.add(line);
          onProgress?.(line);
        });
        await this.#checkBuilt(clock, definition, tag, hash);
      } catch (error) {
        clock.throwIfOver();
        throw this.#buildError(definition, log, error);
      }
    });
  }

  /** What was sent has to be what the tag says. */
  async #checkBuilt(clock: Deadline, definition: BuildDefinition, tag: string, hash: Hash): Promise<void> {
    const sent = buildTag(definition.name, finishHash(hash, definition, await this.#baseIds(clock, definition)));
    if (sent === tag) return;
    await this.#engine.done(clock, {
      method: "DELETE",
      path: `/images/${encodeReference(tag)}`,
      query: { noprune: true },
    });
    throw this.#error(
      "ERR_IMAGE_BUILD",
      `the build context ${definition.context} or its base image changed while ${definition.name} was built; build again`,
    );
  }

  async #baseIds(clock: Deadline, definition: BuildDefinition): Promise<readonly string[]> {
    const ids: string[] = [];
    for (const base of definition.bases) ids.push((await this.findOrPull(clock, base)).id);
    return ids;
  }

  async #loginsForBuild(definition: BuildDefinition): Promise<Record<string, string>> {
    const logins: Record<string, RegistryLogin> = {};
    for (const base of definition.bases) {
      const login = await registryLogin(this.#registryConfigPath, base);
      if (login !== null) logins[login.serveraddress] = login;
    }
    if (Object.keys(logins).length === 0) return {};
    return { "X-Registry-Config": Buffer.from(JSON.stringify(logins)).toString("base64") };
  }

  #buildError(definition: BuildDefinition, log: LogTail, error: unknown): unknown {
    if (isTarError(error)) {
      return this.#error(
        "ERR_IMAGE_BUILD",
        `the build context of ${definition.name} cannot be sent: ${error.message}`,
        error,
      );
    }
    if (error instanceof EngineError || error instanceof ProgressError) {
      const reason = error instanceof EngineError ? error.detail : error.message;
      const tail = log.text === "" ? "" : `. The end of its log:\n${log.text}`;
      return this.#error(
        "ERR_IMAGE_BUILD",
        `${definition.name} (${join(definition.context, definition.dockerfile)}) could not be built: ${reason}${tail}`,
        error,
      );
    }
    return toRuntimeError(
      { operation: "prepareImage", what: `building ${definition.name}`, subject: "image", idempotent: true },
      error,
    );
  }

  /** What the engine knows of an image, or `null` if it does not have it. */
  async find(clock: Deadline, reference: string): Promise<BoxImage | null> {
    try {
      const image = await this.#engine.json<ImageInspection>(clock, {
        method: "GET",
        path: `/images/${encodeReference(reference)}/json`,
      });
      this.#checkFit(reference, image);
      return boxImage(image.Id, image.Config);
    } catch (error) {
      if (isStatus(error, 404)) return null;
      throw error;
    }
  }

  /** What the engine has, else what it can get. Throws what `pull` throws. */
  async findOrPull(clock: Deadline, reference: string, onProgress?: (line: string) => void): Promise<BoxImage> {
    return (await this.find(clock, reference)) ?? (await this.pull(clock, reference, onProgress));
  }

  /** Pulls an image, once for all who ask at the same time. Throws `ERR_IMAGE_NOT_FOUND`, `ERR_IMAGE_PULL`. */
  async pull(clock: Deadline, reference: string, onProgress?: (line: string) => void): Promise<BoxImage> {
    if (isImageId(reference)) {
      throw this.#error(
        "ERR_IMAGE_NOT_FOUND",
        `the engine has no image ${reference}, and an id cannot be pulled; build or import it again`,
      );
    }
    await clock.race(this.once(`pull ${reference}`, () => this.#pullOnce(reference, onProgress)));
    const image = await this.find(clock, reference);
    if (image !== null) return image;
    throw this.#error(
      "ERR_IMAGE_PULL",
      `${reference} was pulled, and the engine does not have it; see the engine's log`,
    );
  }

  /** Work that is under way is shared by all who ask for it. */
  once(key: string, work: () => Promise<void>): Promise<void> {
    let underWay = this.#underWay.get(key);
    if (underWay === undefined) {
      underWay = work().finally(() => this.#underWay.delete(key));
      underWay.catch(() => undefined);
      this.#underWay.set(key, underWay);
    }
    return underWay;
  }

  async #pullOnce(reference: string, onProgress?: (line: string) => void): Promise<void> {
    const { name, tag } = splitReference(reference);
    const doing = { operation: "prepareImage", what: `pulling the image ${reference}`, subject: "image" } as const;
    await operate({ timeoutMs: PULL_TIMEOUT_MS }, doing, async (clock) => {
      try {
        const login = await registryLogin(this.#registryConfigPath, reference);
        const response = await this.#engine.send(clock.signal, {
          method: "POST",
          path: "/images/create",
          query: { fromImage: name, tag },
          headers: login === null ? {} : { "X-Registry-Auth": registryAuthHeader(login) },
        });
        await followProgress(response, onProgress);
      } catch (error) {
        clock.throwIfOver();
        throw this.#pullError(reference, error);
      }
    });
  }

  #pullError(reference: string, error: unknown): unknown {
    if (isStatus(error, 404)) {
      return this.#error(
        "ERR_IMAGE_NOT_FOUND",
        `no registry has the image ${reference} (${error.detail}); check its name, or log in to its registry`,
        error,
      );
    }
    if (isStatus(error, 401, 403))
      return toRuntimeError({ operation: "prepareImage", what: `pulling ${reference}` }, error);
    if (error instanceof EngineError || error instanceof ProgressError) {
      return this.#error(
        "ERR_IMAGE_PULL",
        `the engine could not pull ${reference}: ${error instanceof EngineError ? error.detail : error.message}; see whether the engine reaches the registry`,
        error,
      );
    }
    return toRuntimeError(
      { operation: "prepareImage", what: `pulling ${reference}`, subject: "image", idempotent: true },
      error,
    );
  }

  #checkFit(reference: string, image: ImageInspection): void {
    if (image.Os !== undefined && image.Os !== "" && image.Os !== "linux") {
      throw this.#error("ERR_IMAGE_UNFIT", `the image ${reference} is for ${image.Os}; only Linux images run here`);
    }
  }

  #error(code: RuntimeErrorCode, message: string, cause?: unknown): RuntimeError {
    return new RuntimeError({ code, driver: DRIVER, operation: "prepareImage", message, cause });
  }
}

/** True for an id, with which nothing can be pulled. */
export function isImageId(reference: string): boolean {
  return /^(?:sha256:)?[0-9a-f]{64}$/.test(reference) || /^sha256:[0-9a-f]+$/.test(reference);
}

/** Name and tag (or digest) of a reference; without a tag `latest`, because the engine would pull every tag. */
export function splitReference(reference: string): { readonly name: string; readonly tag: string } {
  const digest = reference.indexOf("@");
  if (digest >= 0)
    return { name: reference.slice(0, digest).replace(/:[^:/]*$/, ""), tag: reference.slice(digest + 1) };
  const colon = reference.lastIndexOf(":");
  if (colon > reference.lastIndexOf("/")) return { name: reference.slice(0, colon), tag: reference.slice(colon + 1) };
  return { name: reference, tag: "latest" };
}

function encodeReference(reference: string): string {
  return reference.split("/").map(encodeURIComponent).join("/");
}

/** The end of a build's log, for the error that it ends with. */
class LogTail {
  #lines: string[] = [];
  #length = 0;

  add(line: string): void {
    this.#lines.push(line.slice(0, LOG_TAIL_BYTES));
    this.#length += line.length + 1;
    while (this.#length > LOG_TAIL_BYTES && this.#lines.length > 1)
      this.#length -= (this.#lines.shift()?.length ?? 0) + 1;
  }

  get text(): string {
    return this.#lines.join("\n");
  }
}

/** The engine said in the middle of its progress that it failed. */
export class ProgressError extends Error {
  override readonly name = "ProgressError";
}

/** Reads the engine's progress (one JSON object a line) to its end. Throws `ProgressError` if the engine reports a failure in it. */
export async function followProgress(
  response: Readable,
  onProgress?: (line: string) => void,
  onAux?: (aux: Readonly<Record<string, unknown>>) => void,
): Promise<void> {
  for await (const line of lines(response)) {
    const step = JSON.parse(line) as {
      readonly stream?: string;
      readonly status?: string;
      readonly id?: string;
      readonly error?: string;
      readonly errorDetail?: { readonly message?: string };
      readonly aux?: Readonly<Record<string, unknown>>;
      readonly progressDetail?: { readonly total?: number };
    };
    const failure = step.errorDetail?.message ?? step.error;
    if (failure !== undefined) throw new ProgressError(failure);
    if (step.aux !== undefined) onAux?.(step.aux);
    if (step.progressDetail?.total !== undefined) continue;
    const text = (
      step.stream ?? (step.status === undefined ? "" : `${step.id === undefined ? "" : `${step.id}: `}${step.status}`)
    ).trimEnd();
    if (text !== "") onProgress?.(text);
  }
}

async function* lines(stream: Readable): AsyncGenerator<string> {
  let rest = Buffer.alloc(0);
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    rest = Buffer.concat([rest, chunk]);
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
      const line = rest.subarray(0, end).toString("utf8").trim();
      if (line !== "") yield line;
      rest = rest.subarray(end + 1);
    }
    if (rest.length > MAX_PROGRESS_LINE_BYTES)
      throw new ProgressError(`a line of progress is longer than ${MAX_PROGRESS_LINE_BYTES} bytes`);
  }
  const last = rest.toString("utf8").trim();
  if (last !== "") yield last;
}
