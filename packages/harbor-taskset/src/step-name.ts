/** Names that Windows keeps for devices, with or without an ending. */
const DEVICE = /^(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(?:\.|$)/i;

/** Why a step's name cannot be a folder's on every system (Harbor's rules, `models/task/step_name.py`); `null` if it can. */
export function refuseStepName(name: string): string | null {
  if (name.trim() === "") return "is empty";
  if (name === "." || name === "..") return "names no folder of its own";
  if (/[<>:"/\\|?*\p{Cc}]/u.test(name))
    return `${JSON.stringify(name)} has a character that a folder's name cannot have`;
  if (/[. ]$/.test(name)) return `${JSON.stringify(name)} ends in a dot or a blank`;
  if (DEVICE.test(name)) return `${JSON.stringify(name)} is the name of a device on Windows`;
  if (Buffer.byteLength(name) > 255) return "has more than 255 bytes";
  return null;
}

/** Positions of names that an earlier one equals on some file system (case, Unicode form), each with that earlier position. */
export function findRepeated(names: readonly unknown[]): readonly (readonly [index: number, earlier: number])[] {
  const first = new Map<string, number>();
  const repeated: (readonly [number, number])[] = [];
  for (const [index, name] of names.entries()) {
    if (typeof name !== "string") continue;
    // Upper case first, so that letters with several lower cases meet, as in full case folding.
    const folded = name.normalize("NFC").toUpperCase().toLowerCase().normalize("NFC");
    const earlier = first.get(folded);
    if (earlier === undefined) first.set(folded, index);
    else repeated.push([index, earlier]);
  }
  return repeated;
}
