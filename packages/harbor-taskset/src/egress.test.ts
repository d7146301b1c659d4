import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BoxReport, Runtime } from "@breakwater/runtime-api";
import { afterAll, beforeAll, expect, it } from "vitest";

import { recordEgress } from "./egress.ts";
import { createRedactor } from "./redact.ts";
import { TrialFolder } from "./trial-folder.ts";
import { newRecord, type Trial } from "./trial.ts";

let outputDir = "";
beforeAll(async () => {
  outputDir = await mkdtemp(join(tmpdir(), "breakwater-egress-"));
});
afterAll(() => rm(outputDir, { recursive: true, force: true }));

const DENIAL = { at: "2026-01-01T00:00:00.000Z", host: "secret.example", port: 443, rule: "not-listed" };

function boxWith(report: () => Partial<BoxReport>): Runtime {
  const network = { initial: { mode: "no-network" }, later: [{ mode: "allowlist", hosts: ["a.b"] }] };
  return { id: "box", spec: { network }, report: async () => report() } as never;
}

async function trialIn(name: string): Promise<Trial> {
  const folder = await TrialFolder.create(outputDir, name);
  return { folder, record: newRecord(), redactor: createRedactor(["secret"]) } as never;
}

it("writes a line for each denial that is known, counts all, and adds boxes up", async () => {
  const trial = await trialIn("denials");
  await recordEgress(
    trial,
    boxWith(() => ({ egress: { deniedCount: 5, denials: [DENIAL] } })),
    "agent",
  );
  await recordEgress(
    trial,
    boxWith(() => ({ egress: { deniedCount: 1, denials: [{ ...DENIAL, host: null }] } })),
    "verifier",
  );
  await recordEgress(
    trial,
    boxWith(() => ({ egress: { deniedCount: 2, denials: [] } })),
    "verifier",
  );
  expect(trial.record.deniedConnections).toEqual({ agent: 5, verifier: 3 });
  const lines = (await readFile(join(outputDir, "denials/egress.jsonl"), "utf8")).trimEnd().split("\n");
  expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
    { ...DENIAL, host: "[REDACTED].example", box: "agent", boxId: "box" },
    { ...DENIAL, host: null, box: "verifier", boxId: "box" },
  ]);
});

it("writes nothing where nothing was refused or counted, and never rejects", async () => {
  const trial = await trialIn("nothing");
  await recordEgress(
    trial,
    boxWith(() => ({ egress: { deniedCount: 0, denials: [] } })),
    "agent",
  );
  await recordEgress(
    trial,
    boxWith(() => ({ egress: null })),
    "agent",
  );
  await recordEgress(
    trial,
    boxWith(() => ({})),
    "agent",
  );
  expect(trial.record.warnings).toEqual([]);
  const unknown = boxWith(() => {
    throw new Error("no answer");
  });
  await recordEgress(trial, unknown, "agent");
  expect(trial.record.warnings).toMatchObject([{ file: "egress.jsonl" }]);
  expect(trial.record.deniedConnections).toEqual({ agent: 0, verifier: 0 });
  await expect(readFile(join(outputDir, "nothing/egress.jsonl"))).rejects.toThrow("ENOENT");
});
