/** `a.b[0].c`, as problems name keys. Keys that are not bare are quoted. */
export function formatKey(path: readonly PropertyKey[]): string {
  let key = "";
  for (const part of path) {
    if (typeof part === "number") key += `[${part}]`;
    else key += (key === "" ? "" : ".") + (/^[\w-]+$/.test(String(part)) ? String(part) : JSON.stringify(String(part)));
  }
  return key;
}

/**
 * The line of every key of a TOML text that has been parsed without error (the parser itself tells no places). Text that is
 * not TOML gives nonsense, never an exception or an endless loop.
 */
export function findKeyLines(text: string): Readonly<Record<string, number>> {
  const lines = new Map<string, number>();
  const arrayLengths = new Map<string, number>();
  let at = 0;
  let line = 1;

  const advance = (count: number): void => {
    for (let step = 0; step < count && at < text.length; step++) if (text[at++] === "\n") line++;
  };
  const skip = (pattern: RegExp): void => {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (match !== null) advance(match[0].length);
  };
  const skipBlank = (): void => skip(/(?:[ \t\r\n]|#[^\n]*)*/y);
  const record = (path: readonly PropertyKey[]): void => {
    const key = formatKey(path);
    if (!lines.has(key)) lines.set(key, line);
  };

  const readString = (): string => {
    const quote = text[at] ?? "";
    const fence = text.startsWith(quote.repeat(3), at) ? quote.repeat(3) : quote;
    const start = at + fence.length;
    let end = start;
    while (end < text.length && !text.startsWith(fence, end)) end += quote === '"' && text[end] === "\\" ? 2 : 1;
    if (fence.length === 3) while (text[end + 3] === quote) end++; // `""""` ends in a quote that belongs to the text
    const content = text.slice(start, end);
    advance(end + fence.length - at);
    if (quote !== '"' || !content.includes("\\")) return content;
    try {
      return JSON.parse(`"${content}"`) as string;
    } catch {
      return content;
    }
  };

  const readKeyPath = (): string[] => {
    const path: string[] = [];
    for (;;) {
      skip(/[ \t]*/y);
      if (text[at] === '"' || text[at] === "'") path.push(readString());
      else {
        const start = at;
        skip(/[\w-]*/y);
        path.push(text.slice(start, at));
      }
      skip(/[ \t]*/y);
      if (text[at] !== ".") return path;
      advance(1);
    }
  };

  /** A key, its `=`, and its value. */
  const readPair = (table: readonly PropertyKey[]): void => {
    const path = [...table];
    const started = at;
    const startLine = line;
    const parts = readKeyPath();
    for (const part of parts) {
      path.push(part);
      const key = formatKey(path);
      if (!lines.has(key)) lines.set(key, startLine);
    }
    if (text[at] === "=") advance(1);
    skip(/[ \t]*/y);
    readValue(path);
    if (at === started) advance(1);
  };

  const readValue = (path: readonly PropertyKey[]): void => {
    const first = text[at];
    if (first === '"' || first === "'") {
      readString();
    } else if (first === "[") {
      advance(1);
      for (let index = 0; ; index++) {
        skipBlank();
        if (at >= text.length || text[at] === "]") break;
        const before = at;
        record([...path, index]);
        readValue([...path, index]);
        skipBlank();
        if (text[at] === ",") advance(1);
        if (at === before) advance(1);
      }
      advance(1);
    } else if (first === "{") {
      advance(1);
      for (;;) {
        skipBlank();
        if (at >= text.length || text[at] === "}") break;
        const before = at;
        readPair(path);
        skipBlank();
        if (text[at] === ",") advance(1);
        if (at === before) advance(1);
      }
      advance(1);
    } else {
      skip(/[^,\]}\n#]*/y);
    }
  };

  /** `[a.b]` below `[[a]]` is `a[last].b`. */
  const resolveHeader = (parts: readonly string[], isArray: boolean): PropertyKey[] => {
    const path: PropertyKey[] = [];
    for (const [index, part] of parts.entries()) {
      path.push(part);
      const key = formatKey(path);
      const length = arrayLengths.get(key);
      if (isArray && index === parts.length - 1) {
        arrayLengths.set(key, (length ?? 0) + 1);
        record(path);
        path.push(length ?? 0);
      } else if (length !== undefined) {
        path.push(length - 1);
      }
    }
    return path;
  };

  let table: readonly PropertyKey[] = [];
  for (;;) {
    skipBlank();
    if (at >= text.length) break;
    if (text[at] === "[") {
      const isArray = text[at + 1] === "[";
      advance(isArray ? 2 : 1);
      table = resolveHeader(readKeyPath(), isArray);
      record(table);
      skip(/[^\n]*/y);
    } else {
      readPair(table);
    }
  }
  return Object.fromEntries(lines);
}

/** The line of a key, else of the closest table or list that it would be in. */
export function lineOfKey(lines: Readonly<Record<string, number>>, key: string): number | undefined {
  for (let rest = key; rest !== ""; rest = rest.replace(/(?:^|\.)(?:"(?:[^"\\]|\\.)*"|[\w-]+)$|\[\d+\]$|.$/s, "")) {
    if (Object.hasOwn(lines, rest)) return lines[rest];
  }
  return undefined;
}
