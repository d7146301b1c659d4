/** Prints one line per finished step with the time since the beginning, and is silent where nobody asked for it. */
export interface Steps {
  done(text: string): void;
}

export function printedSteps(write: (line: string) => void = (line) => process.stdout.write(line)): Steps {
  const startedAt = performance.now();
  return {
    done(text: string): void {
      write(
        `${Math.round(performance.now() - startedAt)
          .toString()
          .padStart(7)} ms  ${text}\n`,
      );
    },
  };
}

export const silentSteps: Steps = { done(): void {} };
