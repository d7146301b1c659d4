import type { RuntimeCapabilities } from "./capabilities.ts";
import type { OperationOptions, Runtime } from "./runtime.ts";
import type { RuntimeSpecInput } from "./spec.ts";

/** Where an image comes from. */
export type ImageSource =
  | { readonly reference: string }
  | {
      /** A folder with a build definition. */
      readonly context: string;
      /** Relative to the context. Default is `Dockerfile`. */
      readonly dockerfile?: string | undefined;
      /** What people know the image by, for messages and tags. */
      readonly name: string;
    };

/** An image that is at hand and pinned. */
export interface PreparedImage {
  /** For `RuntimeSpecInput.image`: names exactly this image where the driver can pin. */
  readonly id: string;
  readonly reference: string;
  readonly entrypoint: readonly string[];
  readonly workdir: string | null;
  readonly user: string | null;
  readonly env: Readonly<Record<string, string>>;
}

export interface PrepareImageOptions extends OperationOptions {
  /** One line of progress (a pull, a build step). */
  readonly onProgress?: ((line: string) => void) | undefined;
}

export interface DoctorLine {
  readonly status: "ok" | "warning" | "failed";
  readonly what: string;
  /** For a warning or a failure: what to do. */
  readonly advice?: string | undefined;
}

export interface SweepOptions extends OperationOptions {
  /** Only say what would be removed. Default is `false`. */
  readonly dryRun?: boolean | undefined;
}

export interface SweepReport {
  /** Objects of dead or expired owners that are gone now (with `dryRun`: that would be). */
  readonly removed: readonly SweptObject[];
  /** Objects of ours that were left alone because their owner lives. */
  readonly kept: readonly SweptObject[];
  /** Objects that should be gone and are not, with the reason. */
  readonly failed: readonly (SweptObject & { readonly reason: string })[];
}

export interface SweptObject {
  readonly kind: string;
  readonly id: string;
  readonly trial: string | null;
}

/**
 * A backend. Making one does no I/O. Disposing it closes connections that it opened itself; it removes nothing that is in use.
 */
export interface RuntimeDriver extends AsyncDisposable {
  /** In messages and results, for instance `docker`. */
  readonly name: string;
  /** The most that this driver can claim; constant. */
  readonly capabilities: RuntimeCapabilities;
  /** What this backend enforces here, never more than `capabilities`. Cached. A backend that does not answer is an error. */
  probe(options?: OperationOptions): Promise<RuntimeCapabilities>;
  /** The same for people: what works, what does not, what to do. */
  doctor(options?: OperationOptions): AsyncIterable<DoctorLine>;
  /** Throws a `TypeError` for an invalid spec. What the backend cannot honour is refused by `start` with `ERR_UNSUPPORTED`. */
  create(spec: RuntimeSpecInput): Runtime;
  /** Pulls what is missing, or builds where the driver can. Throws `ERR_IMAGE_*`, `ERR_UNSUPPORTED`. */
  prepareImage(source: ImageSource, options?: PrepareImageOptions): Promise<PreparedImage>;
  /** Removes exactly what dead or expired owners left. Never touches a live owner's or a foreign object. */
  sweep(options?: SweepOptions): Promise<SweepReport>;
}
