import { appendFileSync } from "node:fs";
import { loadTasks, runJob, shellAgent, type TrialEventType } from "@breakwater/harbor-taskset";
import { dockerDriver } from "@breakwater/runtime-docker";

/*
 * A process that runs a job and is killed in the middle of it, by its own hand, so that the moment is exact: `node job-process.ts '<JSON of JobOrder>'`. Every event
 * is written to a file that no trial owns, before the kill.
 */

export interface JobOrder {
  readonly tasks: string;
  readonly outputDir: string;
  readonly eventsFile: string;
  readonly agentCommand: string;
  readonly resume: boolean;
  /** `null` = it runs to its end. */
  readonly killAt: Moment | null;
}

/** SIGKILL so long after an event of this type has been written down for the n-th time. */
export interface Moment {
  readonly after: TrialEventType;
  readonly occurrence: number;
  readonly delayMs: number;
}

const { tasks, outputDir, eventsFile, agentCommand, resume, killAt } = JSON.parse(process.argv[2] ?? "") as JobOrder;
let seen = 0;

function killSelf(): void {
  process.kill(process.pid, "SIGKILL");
}

await using driver = dockerDriver();
const loaded = await loadTasks(tasks);
const results = runJob(loaded.tasks, {
  driver,
  agent: shellAgent(agentCommand),
  outputDir,
  attempts: 2,
  concurrentTrials: 2,
  resume,
  onEvent: ({ trial, type, at }) => {
    appendFileSync(eventsFile, `${JSON.stringify({ trial, type, at })}\n`);
    if (type !== killAt?.after || (seen += 1) !== killAt.occurrence) return;
    if (killAt.delayMs === 0) killSelf();
    setTimeout(killSelf, killAt.delayMs);
  },
});
for await (const { trial, reward, error } of results) {
  process.stdout.write(`${JSON.stringify({ trial, reward, code: error?.code ?? null })}\n`);
}
