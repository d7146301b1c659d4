import { z } from "zod";

// What the service sends, as far as we read it. Loose: it may send more, and either spelling of a name.

export type SandboxStatus = string;

/** Statuses that a sandbox does not leave. Others, unknown ones too, are not the end. */
const TERMINAL: ReadonlySet<SandboxStatus> = new Set(["ERROR", "TERMINATED", "TIMEOUT"]);

export function isTerminal(status: SandboxStatus): boolean {
  return TERMINAL.has(status);
}

export interface Sandbox {
  readonly id: string;
  readonly status: SandboxStatus;
  readonly labels: readonly string[];
  readonly exitCode: number | null;
  readonly errorType: string | null;
  readonly errorMessage: string | null;
}

const text = z.string().nullish();

export const sandboxSchema: z.ZodType<Sandbox> = z
  .looseObject({
    id: z.string().min(1),
    status: z.string(),
    labels: z.array(z.string()).nullish(),
    exitCode: z.number().nullish(),
    exit_code: z.number().nullish(),
    errorType: text,
    error_type: text,
    errorMessage: text,
    error_message: text,
  })
  .transform((it) => ({
    id: it.id,
    status: it.status,
    labels: it.labels ?? [],
    exitCode: it.exitCode ?? it.exit_code ?? null,
    errorType: it.errorType ?? it.error_type ?? null,
    errorMessage: it.errorMessage ?? it.error_message ?? null,
  }));

export interface SandboxPage {
  readonly sandboxes: readonly Sandbox[];
  readonly total: number | null;
  readonly hasNext: boolean;
}

export const pageSchema: z.ZodType<SandboxPage> = z
  .looseObject({
    sandboxes: z.array(sandboxSchema),
    total: z.number().nullish(),
    has_next: z.boolean().nullish(),
    hasNext: z.boolean().nullish(),
  })
  .transform(({ sandboxes, total, has_next, hasNext }) => ({
    sandboxes,
    total: total ?? null,
    hasNext: has_next ?? hasNext ?? false,
  }));

/** The short form of a status, from the batch call. */
export interface StatusSnapshot {
  readonly status: SandboxStatus;
  readonly errorType: string | null;
  readonly errorMessage: string | null;
}

export interface StatusBatch {
  readonly statuses: readonly (StatusSnapshot & { readonly sandboxId: string })[];
  readonly errors: readonly { readonly sandboxId: string; readonly code: string; readonly message: string }[];
}

export const statusBatchSchema: z.ZodType<StatusBatch> = z
  .looseObject({
    statuses: z.array(
      z.looseObject({ sandbox_id: z.string(), status: z.string(), error_type: text, error_message: text }),
    ),
    errors: z.array(z.looseObject({ sandbox_id: z.string(), code: z.string(), message: text })).nullish(),
  })
  .transform(({ statuses, errors }) => ({
    statuses: statuses.map((it) => ({
      sandboxId: it.sandbox_id,
      status: it.status,
      errorType: it.error_type ?? null,
      errorMessage: it.error_message ?? null,
    })),
    errors: (errors ?? []).map((it) => ({ sandboxId: it.sandbox_id, code: it.code, message: it.message ?? it.code })),
  }));

/** The way to a sandbox's data plane. */
export interface GatewayAccess {
  readonly token: string;
  /** Origin and path, without a slash at the end. */
  readonly base: string;
  readonly expiresAtMs: number;
}

export const gatewayAccessSchema: z.ZodType<GatewayAccess> = z
  .looseObject({
    token: z.string().min(1),
    gateway_url: z.url({ protocol: /^https?$/ }),
    user_ns: z.string(),
    job_id: z.string(),
    expires_at: z.string(),
  })
  .transform(({ token, gateway_url, user_ns, job_id, expires_at }) => ({
    token,
    base: `${gateway_url.replace(/\/+$/, "")}/${user_ns}/${job_id}`,
    // Without a zone it is UTC.
    expiresAtMs: Date.parse(/(?:Z|[+-]\d\d:?\d\d)$/.test(expires_at) ? expires_at : `${expires_at}Z`),
  }));

export interface EgressState {
  readonly generation: number;
  /** What is in force. */
  readonly appliedGeneration: number;
}

export const egressSchema: z.ZodType<EgressState> = z
  .looseObject({ generation: z.number(), applied_generation: z.number() })
  .transform(({ generation, applied_generation }) => ({ generation, appliedGeneration: applied_generation }));

export interface CommandResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
}

export const commandResultSchema: z.ZodType<CommandResult> = z
  .looseObject({ stdout: z.string(), stderr: z.string(), exit_code: z.number() })
  .transform(({ stdout, stderr, exit_code }) => ({ stdout, stderr, exitCode: exit_code }));

export const uploadResultSchema: z.ZodType<{ readonly size?: number | null | undefined }> = z.looseObject({
  size: z.number().nullish(),
});

/** The next part of one stream, here or in a file of the box. */
export interface JobOutput {
  readonly at: number;
  readonly data: Buffer;
  readonly file: string | null;
  readonly bytes: number;
}

/** One job's part of what `box-helper jobs` answers. */
export interface JobAnswer {
  readonly id: string;
  readonly gone: boolean;
  readonly taken: number;
  readonly out: readonly JobOutput[];
  readonly ended: readonly boolean[];
  readonly exit: number | null;
}

const piece = z
  .object({ at: z.number(), data: z.string().nullish(), file: z.string().optional(), bytes: z.number().optional() })
  .transform(({ at, data, file, bytes }) => {
    const here = Buffer.from(data ?? "", "base64");
    return { at, data: here, file: file ?? null, bytes: bytes ?? here.length };
  });

export const jobAnswersSchema: z.ZodType<readonly JobAnswer[]> = z
  .object({
    jobs: z.array(
      z
        .object({
          id: z.string(),
          gone: z.boolean().optional(),
          taken: z.number(),
          out: z.array(piece).length(2),
          ended: z.array(z.boolean()).length(2),
          exit: z.number().optional(),
        })
        .transform((it) => ({ ...it, gone: it.gone ?? false, exit: it.exit ?? null })),
    ),
  })
  .transform(({ jobs }) => jobs);

/** What `box-helper facts` says of a program that is started as the image says. */
export interface ImageSettings {
  readonly uid: number;
  readonly gid: number;
  readonly cwd: string;
  readonly env: readonly string[];
  /** What the box's own files say of that user. */
  readonly user: { readonly gid: number; readonly home: string };
}

export const imageSettingsSchema: z.ZodType<ImageSettings> = z.object({
  uid: z.number(),
  gid: z.number(),
  cwd: z.string(),
  env: z.array(z.string()),
  user: z.object({ gid: z.number(), home: z.string() }),
});
