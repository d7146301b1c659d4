import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { writeReport } from "./write-report.ts";

let job = "";
beforeEach(async () => {
  job = await mkdtemp(join(tmpdir(), "breakwater-report-"));
});
afterEach(() => rm(job, { recursive: true, force: true }));

async function file(path: string, content: unknown): Promise<void> {
  await mkdir(dirname(join(job, path)), { recursive: true });
  await writeFile(join(job, path), typeof content === "string" ? content : JSON.stringify(content));
}

interface Made {
  readonly task?: string;
  readonly rewards?: Readonly<Record<string, number>> | null;
  readonly reward?: number | null;
  readonly message?: string;
  readonly output?: string;
}

async function trial(
  name: string,
  { task = "some-task", rewards = { reward: 1 }, reward, message = "", output = "" }: Made,
): Promise<void> {
  const error = { reason: "infrastructure", phase: "agent", code: "ERR_BOX_LOST", message, retry: "trial", causes: [] };
  await file(
    `${name}/events.jsonl`,
    `${JSON.stringify({ sequence: 1, at: "2026-01-01T00:00:00Z", trial: name, type: "trial.started" })}\n{"cut`,
  );
  await file(`${name}/result.json`, {
    trial: name,
    task,
    driver: "docker",
    agent_info: { name: "oracle" },
    source: null,
    rewards,
    reward: reward === undefined ? (rewards?.["reward"] ?? null) : reward,
    error: rewards === null ? error : null,
    startedAt: "2026-01-01T00:00:00Z",
    finishedAt: "2026-01-01T00:00:09Z",
    durationMs: 9000,
    dir: null,
    mode: "separate",
    agent: null,
    collectHooks: [],
    artifacts: [],
    artifactsRefused: [],
    collectedFrom: null,
    verifier: {
      exitCode: 0,
      timedOut: false,
      durationMs: 1,
      output: { head: output, tail: "", bytes: output.length, truncated: false },
    },
    steps: null,
    stepsNotRun: [],
    notEnforced: [],
    images: [],
    deniedConnections: { agent: 1, verifier: 0 },
    warnings: [],
    leftovers: [],
    retries: [],
  });
}

/** What stands in a data element of the page. */
async function data(id: string): Promise<unknown> {
  const page = await readFile(join(job, "report.html"), "utf8");
  return JSON.parse(new RegExp(`<script type="application/json" id="${id}">(.*?)</script>`, "s").exec(page)?.[1] ?? "");
}

describe("a job", () => {
  it("has totals; trials without a reward are counted and in no mean", async () => {
    await trial("a__1", { task: "a" });
    await trial("a__2", { task: "a", rewards: { reward: 0, style: 0.5 } });
    await trial("b__1", { task: "b", rewards: null, message: "the box was lost" });
    await trial("b__2", { task: "b", rewards: { x: 1, y: 2 }, reward: null });
    await file(
      "c__1/events.jsonl",
      `${JSON.stringify({ sequence: 1, at: "2026-01-01T00:00:00Z", type: "trial.started", details: { task: "c" } })}\n`,
    );
    await file("d__1/result.json", "{");
    await file("result.json", { n_total_trials: 9 });
    await mkdir(join(job, "not-a-trial"));
    const { totals } = await writeReport(job);
    expect(totals).toMatchObject({
      trials: 6,
      expectedTrials: 9,
      tasks: 4,
      outcomes: { passed: 1, failed: 1, graded: 1, "no-reward": 1, unfinished: 2 },
      denied: 4,
      groups: [{ name: "oracle on tasks", trials: 4, graded: 3, meanReward: { value: 0.5 }, passRate: { value: 0.5 } }],
      errors: [
        { code: "ERR_BOX_LOST", reason: "infrastructure", phase: "agent", trials: 1, example: "the box was lost" },
      ],
    });
    expect(totals.rewards.map(({ key, bars }) => [key, bars.map(({ from, trials }) => [from, trials])])).toEqual([
      [
        "reward",
        [
          [0, 1],
          [1, 1],
        ],
      ],
      ["style", [[0.5, 1]]],
      ["x", [[1, 1]]],
      ["y", [[2, 1]]],
    ]);
    expect(await data("trial-5")).toMatchObject({ problem: expect.stringContaining("result.json: ") as string });
    expect((await readdir(job)).filter((name) => name.includes("tmp"))).toEqual([]);
    // It can be written again, and its own files are no trials.
    expect((await writeReport(job)).totals).toEqual(totals);
  });

  it("is refused if it has no trial", async () => {
    await expect(writeReport(job)).rejects.toThrow(RangeError);
    expect(await readdir(job)).toEqual([]);
  });
});

describe("what boxes wrote", () => {
  const HOSTILE =
    "</script><script>alert(1)</script><!--\u001b[2J\u202e]]>|`@everyone` [x](http://example.com)\n# title";

  it("stays text in the page", async () => {
    await trial("t__1", { output: HOSTILE, rewards: { [HOSTILE]: 1 } });
    await writeReport(job);
    const page = await readFile(join(job, "report.html"), "utf8");
    // The page's own: its script, and the two data elements.
    expect(page.match(/<script/g)).toHaveLength(3);
    expect(page).not.toContain("<!--");
    expect(page).not.toContain("\u001b");
    expect(await data("trial-0")).toMatchObject({
      rounds: [
        {
          verifier: {
            output: { head: HOSTILE.replace("\u001b", "\u27e8U+001B\u27e9").replace("\u202e", "\u27e8U+202E\u27e9") },
          },
        },
      ],
    });
  });

  it("makes neither markup nor mentions in the summary", async () => {
    await trial("t__1", { task: HOSTILE, rewards: null, message: HOSTILE });
    await writeReport(job);
    const summary = await readFile(join(job, "summary.md"), "utf8");
    const lines = summary.split("\n").filter((each) => each.includes("everyone"));
    for (const line of lines) expect(line.replaceAll(/`[^`]*`/g, "")).toMatch(/^[|\\ \w.-]*$/);
    // As many cells as the tables have columns: five, and four.
    expect(lines.map((line) => line.match(/(?<!\\)\|/g)?.length)).toEqual([6, 5]);
    expect(summary).not.toMatch(/^# /m);
  });

  it("is escaped in JUnit XML, which has no control characters", async () => {
    await trial("t__1", { task: HOSTILE, rewards: null, message: HOSTILE, output: HOSTILE });
    await trial("t__2", { rewards: { reward: 0.5 } });
    await writeReport(job);
    const xml = await readFile(join(job, "junit.xml"), "utf8");
    expect(xml).toContain('<testsuites name="');
    expect(xml).toContain('tests="2" failures="1" errors="1" skipped="0"');
    expect(xml).toContain('<failure type="reward" message="reward 0.5"/>');
    expect(xml).toContain("&lt;/script&gt;&lt;script&gt;");
    expect(xml.match(/<[/a-z?!]+/g)).not.toContain("<script");
    // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
    expect(xml).not.toMatch(/[\u0000-\u0008\u000b-\u001f]/);
  });

  it("is not followed where it is a link, and not waited for where it is no file", async () => {
    await trial("t__1", {});
    await mkdir(join(job, "t__1/verifier"));
    await file("secret", "of the host");
    await symlink(join(job, "secret"), join(job, "t__1/verifier/reward.json"));
    await file("t__1/verifier/reward.txt", "1\n");
    await writeReport(job);
    expect(await data("trial-0")).toMatchObject({ rewardFiles: [{ path: "verifier/reward.txt", text: "1\n" }] });
  });

  it("is cut to a bound, both ends kept, whatever it is made of", async () => {
    const lines = `begin${"<\u202e".repeat(60_000)}end`;
    await trial("t__1", { output: lines });
    await writeReport(job);
    const page = await readFile(join(job, "report.html"), "utf8");
    expect(page.length).toBeLessThan(700_000);
    const details = (await data("trial-0")) as {
      shortened: boolean;
      rounds: [{ verifier: { output: { head: string } } }];
    };
    expect(details.shortened).toBe(true);
    expect(details.rounds[0].verifier.output.head).toMatch(/^begin<.*characters are left out.*>?end$/s);
  });
});
