import { isOwnerAlive, ownerLabel, parseOwner, type Owner } from "@breakwater/runtime-api";

/** What an object of ours is, from its labels. */
export interface ObjectLabels {
  /** For instance `box`, `network`, `service`. */
  readonly role: string;
  readonly trial: string | null;
  readonly expiresAtMs: number;
  readonly owner: Owner;
}

/** The names of the labels, for the filters of a backend's lists. */
export const LABELS = {
  owner: "breakwater.owner",
  trial: "breakwater.trial",
  expires: "breakwater.expires",
  role: "breakwater.role",
} as const;

/** The labels of a new object of this process. `expiresAtMs` is Unix time. */
export function labelsFor(labels: {
  readonly role: string;
  readonly trial: string | null;
  readonly expiresAtMs: number;
}): Record<string, string> {
  return {
    [LABELS.owner]: ownerLabel(),
    ...(labels.trial === null ? {} : { [LABELS.trial]: labels.trial }),
    [LABELS.expires]: String(Math.ceil(labels.expiresAtMs)),
    [LABELS.role]: labels.role,
  };
}

/** `null` for an object that is not ours, or whose labels are not whole: such a thing is never touched. */
export function parseLabels(labels: Readonly<Record<string, string>> | null | undefined): ObjectLabels | null {
  const owner = parseOwner(labels?.[LABELS.owner] ?? "");
  const role = labels?.[LABELS.role];
  const expires = labels?.[LABELS.expires];
  if (owner === null || role === undefined || expires === undefined || !/^\d{1,16}$/.test(expires)) return null;
  return { role, trial: labels?.[LABELS.trial] ?? null, expiresAtMs: Number(expires), owner };
}

/** Whether `sweep` removes an object: its owner is dead, or cannot be seen from here and the object has expired. */
export function isLeftover(labels: ObjectLabels, nowMs: number = Date.now()): boolean {
  const alive = isOwnerAlive(labels.owner);
  return alive === "dead" || (alive === "unknown" && labels.expiresAtMs <= nowMs);
}
