/**
 * Harbor's templates in `env` tables. Only a value that is `${NAME}` or `${NAME:-default}` from its first to its last character is
 * one; everything else is literal. A host variable that is set and empty counts as set. The default may be empty and may contain `}`, so
 * `${A:-x}${B}` is `A` with the default `x}${B`.
 */
const TEMPLATE = /^\$\{([^}:]+)(?::-([^\n]*))?\}$/;

export interface ResolvedEnv {
  readonly env: Readonly<Record<string, string>>;
  /** Templates without a value: the name in the table, and the host variable that it asks for. */
  readonly missing: readonly { readonly name: string; readonly variable: string }[];
}

/** Replaces templates by the host's values. */
export function resolveEnv(
  env: Readonly<Record<string, string>>,
  hostEnv: Readonly<Record<string, string | undefined>>,
): ResolvedEnv {
  const missing: { name: string; variable: string }[] = [];
  const resolved = Object.entries(env).map(([name, value]): [string, string] => {
    const match = TEMPLATE.exec(value);
    if (match === null) return [name, value];
    const [, variable = "", fallback] = match;
    const found = (Object.hasOwn(hostEnv, variable) ? hostEnv[variable] : undefined) ?? fallback;
    if (found === undefined) missing.push({ name, variable });
    return [name, found ?? ""];
  });
  return { env: Object.fromEntries(resolved), missing };
}

/** The same within a text, as in the headers of MCP servers. `missing`: variables without a value. */
export function resolveEmbedded(
  text: string,
  hostEnv: Readonly<Record<string, string | undefined>>,
): { readonly text: string; readonly missing: readonly string[] } {
  const missing: string[] = [];
  const resolved = text.replace(/\$\{([^}:]+)(?::-([^}\n]*))?\}/g, (_whole, variable: string, fallback?: string) => {
    const found = (Object.hasOwn(hostEnv, variable) ? hostEnv[variable] : undefined) ?? fallback;
    if (found === undefined) missing.push(variable);
    return found ?? "";
  });
  return { text: resolved, missing };
}
