import type { BuildFolder, VerifierMode } from "./task.ts";

/** What `[verifier]` (or a step's) says about where to grade. */
export interface VerifierLevel {
  /** `environment_mode`, as written. */
  readonly mode: VerifierMode | null;
  /** True if there is a table `environment`. */
  readonly hasEnvironment: boolean;
}

export interface ModeChoice {
  readonly mode: VerifierMode;
  readonly from: "environment_mode" | "environment" | "default";
  /** Whose word it is. */
  readonly level: "task" | "step" | null;
}

/**
 * Harbor's rule: at each level `environment_mode`, else a table `environment` means separate, else nothing is said; the step's
 * word goes before the task's; if nobody says anything the mode is shared.
 */
export function resolveVerifierMode(task: VerifierLevel, step?: VerifierLevel): ModeChoice {
  const levels = [["step", step] as const, ["task", task] as const];
  for (const [level, says] of levels) {
    if (says === undefined) continue;
    if (says.mode !== null) return { mode: says.mode, from: "environment_mode", level };
    if (says.hasEnvironment) return { mode: "separate", from: "environment", level };
  }
  return { mode: "shared", from: "default", level: null };
}

export type ImageChoice =
  | { readonly kind: "declared"; readonly reference: string }
  | { readonly kind: "build"; readonly folder: BuildFolder }
  | { readonly kind: "agent-image" };

/**
 * The verifier's image: at each level, the step's before the task's, its declared image, else its `tests/` build definition; if there is
 * none, a fresh copy of the agent's environment. An image that is only inherited from the agent never beats a build definition.
 */
export function chooseVerifierImage(
  levels: readonly { readonly image: string | null; readonly tests: BuildFolder }[],
): ImageChoice {
  for (const { image, tests } of levels) {
    if (image !== null) return { kind: "declared", reference: image };
    if (tests.hasDockerfile || tests.hasComposeFile) return { kind: "build", folder: tests };
  }
  return { kind: "agent-image" };
}
