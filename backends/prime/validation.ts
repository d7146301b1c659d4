import { z } from "zod";

/** An entry of an egress list: an exact name, `*.` and a name, an IPv4 address or an IPv4 range. Gives what the server stores, or throws. */
export function parseEgressEntry(entry: string): string {
  const refuse = (): never => {
    throw new TypeError(`invalid egress entry ${JSON.stringify(entry)}`);
  };
  const text = entry.trim().toLowerCase();
  if (text === "" || /[:@?\s]/.test(text)) refuse();
  const [address = "", prefix, ...rest] = text.split("/");
  if (rest.length > 0) refuse();
  if (/^[\d.]+$/.test(address)) {
    const parts = address.split(".");
    const isAddress = parts.length === 4 && parts.every((part) => /^\d{1,3}$/.test(part) && Number(part) <= 255);
    const bits = prefix === undefined ? 32 : /^\d{1,2}$/.test(prefix) ? Number(prefix) : 33;
    if (!isAddress || bits > 32) refuse();
    return `${parts.map(Number).join(".")}/${bits}`;
  }
  if (prefix !== undefined) refuse();
  const isWildcard = text.startsWith("*.");
  const name = isWildcard ? text.slice(2) : text;
  if (name.includes("*")) refuse();
  const ascii = URL.canParse(`http://${name}`) ? new URL(`http://${name}`).hostname : refuse();
  const labels = ascii.split(".");
  if (ascii.length > 253 || !labels.every((label) => /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/.test(label))) refuse();
  return isWildcard ? `*.${ascii}` : ascii;
}

const egressList = z
  .array(
    z.string().transform((entry, context) => {
      try {
        return parseEgressEntry(entry);
      } catch (error) {
        context.addIssue({ code: "custom", message: (error as Error).message });
        return z.NEVER;
      }
    }),
  )
  .max(256);

export interface EgressPolicy {
  readonly allowlist: readonly string[] | null;
  readonly denylist: readonly string[] | null;
}

export interface EgressRequest {
  readonly allowlist?: readonly string[] | null | undefined;
  readonly denylist?: readonly string[] | null | undefined;
}

export const egressPolicySchema: z.ZodType<EgressRequest> = z
  .looseObject({ allowlist: egressList.nullish(), denylist: egressList.nullish(), rules: z.unknown().optional() })
  .refine(({ allowlist, denylist }) => !(allowlist && denylist), { message: "allowlist and denylist are exclusive" });

const text = z.string().refine((value) => !value.includes("\0"), { message: "must not contain NUL" });
const variables = z.record(z.string(), text);
const argv = z.looseObject({ executable: text.min(1), args: z.array(text).default([]) });

type Variables = Readonly<Record<string, string>>;

/** The create call's body with the server's defaults. */
export interface CreateBody {
  readonly name: string;
  readonly docker_image: string;
  readonly start_command?:
    | string
    | { readonly executable: string; readonly args: readonly string[] }
    | null
    | undefined;
  readonly cpu_cores: number;
  readonly memory_gb: number;
  readonly disk_size_gb: number;
  readonly gpu_count: number;
  readonly gpu_type?: string | null | undefined;
  readonly vm: boolean;
  readonly network_allowlist?: readonly string[] | null | undefined;
  readonly network_denylist?: readonly string[] | null | undefined;
  readonly timeout_minutes: number;
  readonly idle_timeout_minutes?: number | null | undefined;
  readonly environment_vars?: Variables | null | undefined;
  readonly secrets?: Variables | null | undefined;
  readonly labels: readonly string[];
  readonly team_id?: string | null | undefined;
  readonly region?: string | null | undefined;
  readonly registry_credentials_id?: string | null | undefined;
  readonly guaranteed: boolean;
  readonly advanced_configs?: unknown;
  readonly idempotency_key?: string | null | undefined;
}

const createShape = {
  name: z.string().min(1).max(100),
  docker_image: z.string().min(1),
  start_command: z.union([text, argv]).nullish(),
  cpu_cores: z.number().min(0.1).max(16).default(1),
  memory_gb: z.number().min(0.1).max(64).default(2),
  disk_size_gb: z.number().min(0.1).max(1000).default(10),
  gpu_count: z.int().min(0).max(8).default(0),
  gpu_type: z.string().nullish(),
  vm: z.boolean().default(true),
  network_allowlist: egressList.nullish(),
  network_denylist: egressList.nullish(),
  network_access: z.boolean().nullish(),
  timeout_minutes: z
    .int()
    .refine((minutes) => minutes !== 0, { message: "timeout_minutes must be negative for infinite or >= 1" })
    .default(60),
  idle_timeout_minutes: z.int().min(1).nullish(),
  environment_vars: variables.nullish(),
  secrets: variables.nullish(),
  labels: z.array(z.string()).default([]),
  team_id: z.string().nullish(),
  region: z.string().nullish(),
  registry_credentials_id: z.string().nullish(),
  guaranteed: z.boolean().default(false),
  advanced_configs: z.looseObject({}).nullish(),
  idempotency_key: z.string().min(1).max(128).nullish(),
};

export const createSchema: z.ZodType<CreateBody> = z.looseObject(createShape).superRefine((body, context) => {
  const refuse = (key: string, message: string): void =>
    context.addIssue({ code: "custom", path: [key], message, input: body });
  if (body.gpu_count > 0 && !body.gpu_type) refuse("gpu_type", "gpu_type is required with gpu_count");
  if (body.gpu_count === 0 && body.gpu_type) refuse("gpu_type", "gpu_type needs gpu_count");
  if (body.gpu_count > 0 && !body.vm) refuse("gpu_count", "GPUs need a VM");
  if (body.network_allowlist && body.network_denylist) {
    refuse("network_denylist", "network_allowlist and network_denylist are exclusive");
  }
  for (const key of ["network_allowlist", "network_denylist"] as const) {
    if (body[key] && !body.vm) refuse(key, `${key} is for VM sandboxes only`);
  }
  for (const key of ["registry_credentials_id", "guaranteed"] as const) {
    if (body[key] && body.vm) refuse(key, `${key} is for container sandboxes only`);
  }
  if (body.vm && typeof body.start_command === "string") {
    // The default that older clients always send is not held against them.
    if (body.start_command !== "tail -f /dev/null") {
      refuse("start_command", "VM sandboxes take start_command as {executable, args}");
    }
  }
  const idle = body.idle_timeout_minutes;
  if (idle && body.timeout_minutes > 0 && idle > body.timeout_minutes) {
    refuse("idle_timeout_minutes", "must not exceed timeout_minutes");
  }
});

/** Keys that the documents do not have. They are ignored. */
export function unknownKeys(body: object, of: "create" | "exec"): readonly string[] {
  const known = of === "create" ? createShape : execShape;
  return Object.keys(body).filter((key) => !Object.hasOwn(known, key));
}

const ids = (max: number): z.ZodType<string[]> =>
  z
    .array(z.string().min(1))
    .min(1)
    .max(max)
    .refine((all) => new Set(all).size === all.length, { message: "must be unique" });

export const batchStatusSchema: z.ZodType<{ readonly sandbox_ids: readonly string[] }> = z.looseObject({
  sandbox_ids: ids(100),
});

export const batchJobsSchema: z.ZodType<{
  readonly jobs: readonly { readonly sandbox_id: string; readonly job_id: string }[];
}> = z.looseObject({
  jobs: z
    .array(z.looseObject({ sandbox_id: z.string().min(1), job_id: z.string().regex(/^[0-9a-f]{8}$/) }))
    .min(1)
    .max(100),
});

export const bulkDeleteSchema: z.ZodType<{
  readonly sandbox_ids?: readonly string[] | null | undefined;
  readonly labels?: readonly string[] | null | undefined;
  readonly team_id?: string | null | undefined;
}> = z.looseObject({
  sandbox_ids: ids(500).nullish(),
  labels: z.array(z.string()).min(1).max(50).nullish(),
  team_id: z.string().nullish(),
  user_id: z.string().nullish(),
  all_users: z.boolean().nullish(),
});

export const listQuerySchema: z.ZodType<{
  readonly page: number;
  readonly per_page: number;
  readonly team_id?: string | undefined;
  readonly status?: string | undefined;
  readonly is_active?: string | undefined;
  readonly labels?: readonly string[] | undefined;
}> = z.looseObject({
  page: z.coerce.number().int().min(1).default(1),
  per_page: z.coerce.number().int().min(1).max(1000).default(50),
  team_id: z.string().optional(),
  user_id: z.string().optional(),
  status: z.string().optional(),
  is_active: z.enum(["true", "false", "True", "False"]).optional(),
  labels: z.union([z.string().transform((one) => [one]), z.array(z.string())]).optional(),
});

export const checkImageSchema: z.ZodType<{ readonly image: string }> = z.looseObject({ image: z.string().min(1) });

export interface ExecBody {
  readonly command: string;
  readonly working_dir?: string | null | undefined;
  readonly env?: Variables | null | undefined;
  readonly timeout: number;
  readonly user?: string | null | undefined;
}

const execShape = {
  command: z.string(),
  working_dir: z.string().nullish(),
  env: variables.nullish(),
  sandbox_id: z.string().nullish(),
  timeout: z.number().positive().default(300),
  user: z.string().nullish(),
};

export const execSchema: z.ZodType<ExecBody> = z.looseObject(execShape);
