/** `$NAME`, `${NAME}` with `-`, `:-`, `?`, `:?`, `+` and `:+`, or `$$`. */
const VARIABLE = /\$(?:(\$)|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-?+])([^}]*))?\}|)/g;

/** A text of a compose file with its variables filled in, as compose does it. `missing`: variables without a value, each once. */
export function expand(
  text: string,
  variables: Readonly<Record<string, string | undefined>>,
): {
  readonly text: string;
  readonly missing: readonly string[];
  readonly invalid: boolean;
  readonly used: readonly string[];
} {
  const missing = new Set<string>();
  const used = new Set<string>();
  let invalid = false;
  const replace = (_: string, dollar?: string, bare?: string, braced?: string, sign?: string, word = ""): string => {
    if (dollar !== undefined) return "$";
    const name = bare ?? braced;
    if (name === undefined) {
      invalid = true;
      return "$";
    }
    used.add(name);
    const value = Object.hasOwn(variables, name) ? variables[name] : undefined;
    const isSet = value !== undefined && !(sign?.startsWith(":") === true && value === "");
    if (sign?.endsWith("+") === true) return isSet ? word : "";
    if (isSet) return value;
    if (sign?.endsWith("-") === true) return word;
    missing.add(name);
    return "";
  };
  return { text: text.replace(VARIABLE, replace), missing: [...missing], invalid, used: [...used] };
}

const UNITS_MS: Readonly<Record<string, number>> = { us: 0.001, ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** `1m30s` and the like; at least a millisecond. `null` = no duration. */
export function parseDurationMs(value: unknown): number | null {
  if (value === 0) return 0;
  const text = typeof value === "string" ? value.trim() : "";
  if (!/^(?:\d+(?:\.\d+)?(?:us|ms|s|m|h))+$/.test(text)) return text === "0" ? 0 : null;
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(us|ms|s|m|h)/g)];
  const ms = parts.reduce((sum, [, number, unit]) => sum + Number(number) * (UNITS_MS[unit ?? ""] ?? 0), 0);
  return Math.ceil(ms);
}

/** Words of a command as a shell would split them, without expansions. `null`: a quote has no end. */
export function splitWords(text: string): readonly string[] | null {
  const words: string[] = [];
  let word: string | null = null;
  for (let at = 0; at < text.length; at++) {
    const character = text[at] ?? "";
    if (/\s/.test(character)) {
      if (word !== null) words.push(word);
      word = null;
    } else if (character === "'" || character === '"') {
      word ??= "";
      for (at++; text[at] !== character; at++) {
        if (at >= text.length) return null;
        if (character === '"' && text[at] === "\\" && /["\\$`]/.test(text[at + 1] ?? "")) at++;
        word += text[at] ?? "";
      }
    } else {
      if (character === "\\") at++;
      word = (word ?? "") + (text[at] ?? "");
    }
  }
  return word === null ? words : [...words, word];
}
