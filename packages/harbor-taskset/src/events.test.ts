import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { EventLog, type TrialEvent } from "./events.ts";
import { createRedactor } from "./redact.ts";

let directory = "";
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "breakwater-events-"));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

describe("the record of a trial's steps", () => {
  it("is numbered, and on disk before the next step; a listener that fails changes nothing", async () => {
    const file = join(directory, "events.jsonl");
    const heard: TrialEvent[] = [];
    const onEvent = (event: TrialEvent): void => {
      heard.push(event);
      throw new Error("a listener's own problem");
    };
    using events = new EventLog({ trial: "one", redactor: createRedactor(["hunter22"]), file, onEvent });
    events.emit("trial.started");
    events.emit("agent.started", { box: "b", details: { said: "hunter22" } });
    const lines = (await readFile(file, "utf8")).trim().split("\n");
    const written = lines.map((line) => JSON.parse(line) as TrialEvent);
    expect(written).toEqual(heard);
    expect(written.map(({ sequence, type }) => [sequence, type])).toEqual([
      [1, "trial.started"],
      [2, "agent.started"],
    ]);
    expect(written[1]?.details).toEqual({ said: "[REDACTED]" });
  });

  it("is never written over another one", () => {
    const options = { trial: "one", redactor: createRedactor([]), file: join(directory, "twice.jsonl") };
    using _first = new EventLog(options);
    expect(() => new EventLog(options)).toThrow(/EEXIST/);
  });
});
