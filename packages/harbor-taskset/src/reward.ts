import type { MinReward } from "./task.ts";

/** Where a verifier leaves its verdict, in the order in which the files are looked at. The first that exists counts; no other is a substitute for it. */
export const REWARD_FILES = ["reward.json", "reward.txt"] as const;

export type RewardFile = (typeof REWARD_FILES)[number];

/** More is no verdict. */
export const MAX_REWARD_BYTES: number = 1024 * 1024;

/** The map that the verifier wrote. */
export type Rewards = Readonly<Record<string, number>>;

export type ParsedReward =
  | { readonly rewards: Rewards }
  | {
      readonly rewards: null;
      /** `empty`: no byte at all. `invalid`: everything else that is no reward. */
      readonly reason: "empty" | "invalid";
      /** What is wrong, with the beginning of the content where that helps. */
      readonly message: string;
    };

/**
 * Reads a reward file's content strictly: finite numbers only, nothing guessed. `docs/grading.md` has every shape with its outcome.
 * `reward.json` is an object of numbers, or one number (`{ reward: n }`); `reward.txt` is one number.
 */
export function parseReward(file: RewardFile, content: Uint8Array): ParsedReward {
  if (content.length === 0) return { rewards: null, reason: "empty", message: `${file} is empty` };
  if (content.length > MAX_REWARD_BYTES) return invalid(file, `has more than ${MAX_REWARD_BYTES} bytes`);
  let text: string;
  try {
    // A byte order mark is not taken away: Harbor refuses it, too.
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
  } catch {
    return invalid(file, "is not UTF-8");
  }
  return file === "reward.json" ? parseJson(text) : parseText(text);
}

/** Checks what a grader in TypeScript returned, by the same rules. */
export function checkRewards(value: unknown): ParsedReward {
  const what = "what the grader returned";
  if (typeof value === "number") {
    return Number.isFinite(value) ? { rewards: { reward: plain(value) } } : invalid(what, "is not a finite number");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return invalid(what, "is neither a number nor an object of numbers");
  }
  return fromEntries(what, Object.entries(value));
}

/** The one number of a trial: the key `reward`, else the only key, else the sum of all if that is wanted; `null` = there is none. */
export function headlineReward(rewards: Rewards, sumRewards: boolean): number | null {
  if (Object.hasOwn(rewards, "reward")) return rewards["reward"] ?? null;
  const values = Object.values(rewards);
  if (values.length === 1) return values[0] ?? null;
  return sumRewards ? values.reduce((sum, value) => sum + value, 0) : null;
}

/**
 * Harbor's rule for steps: the mean of each key, a missing one counting as 0; or the last one's. `null`: a step without a verdict, which has no keys (Harbor leaves it
 * out of the mean: who has done well could keep the rest from being graded).
 */
export function combineRewards(strategy: "mean" | "final", steps: readonly (Rewards | null)[]): Rewards | null {
  if (strategy === "final") return steps.at(-1) ?? null;
  const given = steps.filter((rewards) => rewards !== null);
  if (given.length === 0) return null;
  const keys = [...new Set(given.flatMap((rewards) => Object.keys(rewards)))];
  const sum = (key: string): number =>
    given.reduce((total, rewards) => total + (Object.hasOwn(rewards, key) ? (rewards[key] ?? 0) : 0), 0);
  return Object.fromEntries(keys.map((key) => [key, sum(key) / steps.length]));
}

/** Whether a step's rewards are enough for the next step. A number is about the key `reward`; a key that is missing is never enough. */
export function isEnough(rewards: Rewards, least: MinReward | null): boolean {
  if (least === null) return true;
  const wanted = typeof least === "number" ? { reward: least } : least;
  return Object.entries(wanted).every(([key, value]) => Object.hasOwn(rewards, key) && (rewards[key] ?? 0) >= value);
}

const NUMBER = /^[ \t\r\n]*[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[ \t\r\n]*$/;

function parseText(text: string): ParsedReward {
  if (!NUMBER.test(text)) return invalid("reward.txt", `is not one number: ${beginning(text)}`);
  const value = Number(text);
  if (!Number.isFinite(value)) return invalid("reward.txt", "has a number that is not finite");
  return { rewards: { reward: plain(value) } };
}

function parseJson(text: string): ParsedReward {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const reason = error instanceof SyntaxError ? "is not valid JSON" : "is nested too deeply";
    return invalid("reward.json", `${reason}: ${beginning(text)}`);
  }
  if (typeof value === "number") {
    return Number.isFinite(value)
      ? { rewards: { reward: plain(value) } }
      : invalid("reward.json", "has a number that is not finite");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return invalid("reward.json", `is neither a number nor an object of numbers: ${beginning(text)}`);
  }
  const entries = Object.entries(value);
  const parsed = fromEntries("reward.json", entries);
  // All values are numbers now, so every string literal of the text is a key.
  const keys = text.match(/"(?:[^"\\]|\\.)*"/g)?.length ?? 0;
  return parsed.rewards !== null && keys !== entries.length ? invalid("reward.json", "has a key twice") : parsed;
}

function fromEntries(what: string, entries: readonly (readonly [string, unknown])[]): ParsedReward {
  if (entries.length === 0) return invalid(what, "has no rewards in it");
  const rewards: [string, number][] = [];
  for (const [key, value] of entries) {
    if (typeof value !== "number") {
      return invalid(
        what,
        `has something else than a number at ${beginning(key)}: ${beginning(JSON.stringify(value))}`,
      );
    }
    if (!Number.isFinite(value)) return invalid(what, `has a number that is not finite at ${beginning(key)}`);
    rewards.push([key, plain(value)]);
  }
  return { rewards: Object.fromEntries(rewards) };
}

/** -0 means 0. */
function plain(value: number): number {
  return value === 0 ? 0 : value;
}

function invalid(what: string, message: string): ParsedReward {
  return { rewards: null, reason: "invalid", message: `${what} ${message}` };
}

function beginning(text: string | undefined): string {
  const shown = text ?? "undefined";
  return JSON.stringify(shown.length > 80 ? `${shown.slice(0, 80)}…` : shown);
}
