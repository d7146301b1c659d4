/*
 * Text that a box wrote, for people: nothing of it acts on a terminal or turns the direction of what stands around it, and none of it is longer than wanted.
 */

/** Colours and the like: of no use here, and what they surround is. */
// oxlint-disable-next-line no-control-regex -- control characters are what is looked for
const STYLES = /\u001b\[[0-9;:]*m/g;
/** Control characters but tab and line end, and those that change the direction of text or are not seen. */
// oxlint-disable-next-line no-control-regex -- the same
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** Leaves out colours, and shows every other character that is not seen as a sign of its own. */
export function readable(text: string): string {
  return text
    .replaceAll("\r\n", "\n")
    .replaceAll(STYLES, "")
    .replaceAll(UNSEEN, (character) => `\u27e8U+${hexadecimal(character.codePointAt(0) ?? 0)}\u27e9`);
}

function hexadecimal(code: number): string {
  return code.toString(16).toUpperCase().padStart(4, "0");
}

/** Both ends of a text that is too long. */
export function shorten(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  const head = Math.ceil(maxLength / 2);
  const tail = maxLength - head;
  const leftOut = text.length - maxLength;
  return `${text.slice(0, head)}\n\u2026 ${leftOut} characters are left out \u2026\n${tail === 0 ? "" : text.slice(-tail)}`;
}

/** One line: for lists and tables. */
export function oneLine(text: string, maxLength: number): string {
  const line = readable(text).replaceAll(/\s+/g, " ").trim();
  return line.length > maxLength ? `${line.slice(0, maxLength)}\u2026` : line;
}

export interface Limits {
  /** Characters of each text. */
  readonly text: number;
  /** Members of each list or object; of more both ends stay. */
  readonly members: number;
}

/** A copy of JSON values in which all texts are readable and nothing is longer than the limits. Calls `onCut` if something had to be left out. */
export function bounded(value: unknown, limits: Limits, onCut: () => void): unknown {
  const copy = (each: unknown): unknown => {
    if (typeof each === "string") {
      if (each.length > limits.text) onCut();
      return readable(shorten(each, limits.text));
    }
    if (typeof each !== "object" || each === null) return each;
    if (Array.isArray(each)) return bothEnds(each, limits.members, onCut).map(copy);
    const entries = bothEnds(Object.entries(each), limits.members, onCut);
    return Object.fromEntries(entries.map(([key, member]) => [oneLine(key, limits.text), copy(member)]));
  };
  return copy(value);
}

function bothEnds<T>(list: readonly T[], most: number, onCut: () => void): readonly T[] {
  if (list.length <= most) return list;
  onCut();
  const head = Math.ceil(most / 2);
  return [...list.slice(0, head), ...list.slice(head - most)];
}
