/**
 * Whether GNU tar's `--exclude=PATTERN …` would leave a path out of `tar -C <folder> .`: Harbor's meaning of an artifact's `exclude`.
 * A pattern matches from any component on, `*` and `?` match `/` too, case counts, and what is below a directory that matches is left out with
 * it. As the names begin with `./`, `*`, `?` and `.` leave everything out; a pattern that ends in `/` matches nothing.
 */
export function excluder(patterns: readonly string[]): (path: string) => boolean {
  const compiled = patterns.map(compile);
  if (compiled.some((pattern) => matches(pattern, "."))) return () => true;
  const directories = new Map<string, boolean>();
  const matchesAny = (path: string): boolean => compiled.some((pattern) => matchesFromAnyComponent(pattern, path));
  const isExcludedDirectory = (path: string): boolean => {
    let excluded = directories.get(path);
    if (excluded === undefined) {
      excluded = matchesAny(path);
      if (directories.size >= MAX_REMEMBERED) directories.clear();
      directories.set(path, excluded);
    }
    return excluded;
  };
  return (path) => {
    if (compiled.length === 0) return false;
    for (let slash = path.indexOf("/"); slash >= 0; slash = path.indexOf("/", slash + 1)) {
      if (isExcludedDirectory(path.slice(0, slash))) return true;
    }
    return matchesAny(path);
  };
}

const MAX_REMEMBERED = 10_000;

type Token = "*" | "?" | { readonly one: (character: string) => boolean };

function matchesFromAnyComponent(pattern: readonly Token[], path: string): boolean {
  if (matches(pattern, `./${path}`) || matches(pattern, path)) return true;
  for (let slash = path.indexOf("/"); slash >= 0; slash = path.indexOf("/", slash + 1)) {
    if (matches(pattern, path.slice(slash + 1))) return true;
  }
  return false;
}

/** The usual walk with one step back to the last `*`: no pattern takes more than its length times the text's. */
function matches(pattern: readonly Token[], text: string): boolean {
  const characters = Array.from(text);
  let at = 0;
  let token = 0;
  let star = -1;
  let starAt = 0;
  while (at < characters.length) {
    const wanted = pattern[token];
    if (wanted === "*") {
      star = token++;
      starAt = at;
    } else if (wanted !== undefined && (wanted === "?" || wanted.one(characters[at] ?? ""))) {
      token++;
      at++;
    } else if (star >= 0) {
      token = star + 1;
      at = ++starAt;
    } else {
      return false;
    }
  }
  while (pattern[token] === "*") token++;
  return token === pattern.length;
}

function compile(pattern: string): readonly Token[] {
  const characters = Array.from(pattern);
  const tokens: Token[] = [];
  for (let at = 0; at < characters.length; at++) {
    const character = characters[at] ?? "";
    if (character === "*" || character === "?") {
      tokens.push(character);
    } else if (character === "\\" && at + 1 < characters.length) {
      tokens.push(literal(characters[++at] ?? ""));
    } else {
      const set = character === "[" ? bracket(characters, at) : null;
      tokens.push(set === null ? literal(character) : { one: set.one });
      if (set !== null) at = set.end;
    }
  }
  return tokens;
}

function literal(wanted: string): Token {
  return { one: (character) => character === wanted };
}

const CLASSES: Readonly<Record<string, RegExp>> = {
  alpha: /^\p{L}$/u,
  digit: /^[0-9]$/,
  alnum: /^[\p{L}0-9]$/u,
  upper: /^\p{Lu}$/u,
  lower: /^\p{Ll}$/u,
  space: /^\s$/u,
  punct: /^[!-/:-@[-`{-~]$/,
  xdigit: /^[0-9a-fA-F]$/,
};

/** `[abc]`, `[a-z]`, `[!abc]`, `[^abc]`, `[[:digit:]]`; `null` if there is no end, and the bracket stands for itself. */
function bracket(
  characters: readonly string[],
  start: number,
): { readonly one: (character: string) => boolean; readonly end: number } | null {
  let at = start + 1;
  const negated = characters[at] === "!" || characters[at] === "^";
  if (negated) at++;
  const tests: ((character: string) => boolean)[] = [];
  for (const first = at; ; at++) {
    let from = characters[at];
    if (from === undefined) return null;
    if (from === "]" && at > first) break;
    const name = from === "[" ? /^\[:([a-z]+):\]/.exec(characters.slice(at, at + 12).join(""))?.[1] : undefined;
    const known = name === undefined ? undefined : CLASSES[name];
    if (name !== undefined && known !== undefined) {
      tests.push((character) => known.test(character));
      at += name.length + 3;
      continue;
    }
    if (from === "\\" && characters[at + 1] !== undefined) from = characters[++at] ?? "";
    const low = from;
    const high = characters[at + 2];
    if (characters[at + 1] === "-" && high !== undefined && high !== "]") {
      at += 2;
      tests.push((character) => low <= character && character <= high);
    } else {
      tests.push((character) => character === low);
    }
  }
  return { one: (character) => tests.some((test) => test(character)) !== negated, end: at };
}
