import { spawn, type ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer, get } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import type { Readable } from "node:stream";
import { pathToFileURL } from "node:url";
import { chromium as chromiumPath } from "@breakwater/backends/browser";
import { chromium, type Browser, type BrowserContextOptions, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { makeLargeJob, makeTrial } from "./made-job.ts";

/* The report as people see it: in a real browser. */

const LARGE = 2_000;
/** Each sets `hacked` where it is taken for markup or run. */
const ATTACKS = [
  "</script><script>window.hacked = 1</script>",
  "<img src=x onerror='window.hacked = 1'>",
  "<svg onload='window.hacked = 1'></svg>",
  '<iframe srcdoc="<script>parent.hacked = 1</script>"></iframe>',
  "<style>body { display: none }</style><!--",
  "\u001b[2J\u001b]0;title\u0007\u202e\u0000",
].join("\n");

const BIN = join(import.meta.dirname, "../src/bin.ts");
const TIMEOUT_MS = 900_000;
/** A browser is installed, thousands of files are made. */
const HOOK_TIMEOUT_MS = 900_000;
vi.setConfig({ testTimeout: TIMEOUT_MS });

let folder = "";
let browser: Browser;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "breakwater-view-"));
  // Chromium's own sandbox does not start for root.
  browser = await chromium.launch({ executablePath: await chromiumPath(), chromiumSandbox: process.getuid?.() !== 0 });
}, HOOK_TIMEOUT_MS);
afterAll(async () => {
  await browser.close();
  await rm(folder, { recursive: true, force: true });
});

/** The command line, from source. */
function start(...args: readonly string[]): ChildProcessByStdio<null, Readable, Readable> {
  return spawn(process.execPath, ["--conditions=@breakwater/source", BIN, ...args], {
    cwd: folder,
    env: { ...process.env, NODE_OPTIONS: "" },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: TIMEOUT_MS,
    killSignal: "SIGKILL",
  });
}

async function cli(...args: readonly string[]): Promise<{ readonly exitCode: unknown; readonly stderr: string }> {
  const child = start(...args);
  const ended = once(child, "close");
  const [, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
  return { exitCode: (await ended)[0], stderr };
}

async function view(job: string): Promise<string> {
  const { exitCode, stderr } = await cli("view", job, "--no-open");
  expect([exitCode, stderr]).toEqual([0, ""]);
  return pathToFileURL(join(job, "report.html")).href;
}

interface Visit extends AsyncDisposable {
  readonly page: Page;
  /** What the browser complained of, and what it asked anybody for. */
  readonly complaints: string[];
  readonly requests: string[];
}

async function visit(url: string | null, width = 1280, options: BrowserContextOptions = {}): Promise<Visit> {
  const context = await browser.newContext({ ...options, viewport: { width, height: 900 } });
  const page = await context.newPage();
  const complaints: string[] = [];
  const requests: string[] = [];
  page.on("console", (message) => complaints.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("dialog", (dialog) => {
    complaints.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => requests.push(request.url()));
  if (url !== null) await page.goto(url);
  return { page, complaints, requests, [Symbol.asyncDispose]: () => context.close() };
}

/** All trials that are listed, and all parts of them. */
async function openAll(page: Page): Promise<void> {
  for (const kind of ["trial", "part"]) {
    const closed = page.locator(`details.${kind}:not([open]) > summary`);
    for (let left = await closed.count(); left > 0; left -= 1) await closed.first().click();
  }
}

/** What sticks out of the window, if anything does. */
function sticksOut(page: Page): Promise<readonly string[]> {
  return page.evaluate(() => {
    if (document.documentElement.scrollWidth <= innerWidth) return [];
    const out = [...document.querySelectorAll("*")].filter((it) => it.getBoundingClientRect().right > innerWidth + 1);
    return out.slice(0, 5).map((it) => `${it.tagName}.${it.getAttribute("class")}`);
  });
}

describe("2,000 trials", () => {
  let url = "";
  beforeAll(async () => {
    const job = join(folder, "large");
    makeLargeJob(job, LARGE);
    url = await view(job);
  }, HOOK_TIMEOUT_MS);

  test.each([1280, 400])("readable at %i pixels, nothing asked for, nothing to complain of", async (width) => {
    await using visited = await visit(url, width);
    const { page, complaints, requests } = visited;
    expect(await page.locator("details.trial").count()).toBe(100);
    expect(await page.locator("svg.timeline").count()).toBe(100);
    expect(await page.locator(".trial-body").count(), "made when it is opened").toBe(0);
    await page.locator("details.trial > summary").nth(9).click();
    for (const summary of await page.locator("details.trial[open] details.part > summary").all()) await summary.click();
    const body = await page.locator(".trial-body").innerText();
    for (const part of [
      "ERR_BOX_LOST",
      "Timeline",
      "tests/test_0.py",
      "404 no such container",
      "example.com",
      "835e5eba",
    ])
      expect(body).toContain(part);
    expect(await sticksOut(page)).toEqual([]);
    const sizes = await page
      .locator("td, pre, p, summary")
      .evaluateAll((all) => all.map((it) => parseFloat(getComputedStyle(it).fontSize)));
    expect(Math.min(...sizes)).toBeGreaterThanOrEqual(12);
    expect([complaints, requests]).toEqual([[], [url]]);
  });

  test("in files of a bounded size", async () => {
    expect((await stat(join(folder, "large/report.html"))).size).toBeLessThan(48 * 1024 * 1024);
    // A comment may have that many.
    expect((await readFile(join(folder, "large/summary.md"), "utf8")).length).toBeLessThan(65_536);
  });

  test("totals, more, found and ordered", async () => {
    await using visited = await visit(url);
    const { page, complaints } = visited;
    const shown = await page.locator("main").innerText();
    for (const part of [
      "2000\ntrials",
      "500\ntasks",
      "200\nwithout a reward",
      "1800 of 2000",
      "pass@2",
      "ERR_BOX_LOST",
    ])
      expect(shown).toContain(part);
    await page.getByRole("button", { name: "Show more" }).click();
    expect(await page.locator("details.trial").count()).toBe(200);
    await page.getByLabel("Outcome").selectOption("no-reward");
    expect(await page.getByRole("status").innerText()).toBe("100 of 200 trials (2000 in all)");
    await page.getByLabel("Find").fill("task-0499");
    expect(await page.locator("details.trial .name").allInnerTexts()).toEqual(["task-0499__0001999"]);
    await page.getByLabel("Outcome").selectOption("");
    await page.getByLabel("Order").selectOption("reward");
    expect(await page.locator("details.trial .outcome").allInnerTexts()).toEqual([
      "ERR_BOX_LOST",
      "reward 0.5",
      "reward 1",
      "reward 1",
    ]);
    expect(complaints).toEqual([]);
  });
});

describe("hostile text", () => {
  const line = "A".repeat(10 * 1024 * 1024);
  let job = "";
  let url = "";
  beforeAll(async () => {
    job = join(folder, "hostile");
    makeTrial(job, "t__1", {
      task: ATTACKS,
      output: `${ATTACKS}${line}${ATTACKS}`,
      rewards: { [ATTACKS]: 1, reward: 1 },
      foreign: ATTACKS,
    });
    makeTrial(job, "t__2", {
      task: ATTACKS,
      output: `${"\n".repeat(1_000_000)}${ATTACKS}`,
      rewards: null,
      message: ATTACKS,
      foreign: ATTACKS,
    });
    makeTrial(job, "t__3", { foreign: "A".repeat(100_000) });
    url = await view(job);
  }, HOOK_TIMEOUT_MS);

  test("its attacks work where nothing is done against them", async () => {
    await using visited = await visit(null);
    const { page } = visited;
    const unprotected = join(folder, "unprotected.html");
    await writeFile(unprotected, `<body><script type="application/json">${JSON.stringify(ATTACKS)}</script>`);
    await page.goto(pathToFileURL(unprotected).href);
    await page.waitForFunction(() => "hacked" in window);
    expect(await page.locator("img, iframe").count()).toBeGreaterThan(1);
  });

  test.each([1280, 400])("is text, and stays within %i pixels", async (width) => {
    await using visited = await visit(url, width);
    const { page, complaints, requests } = visited;
    await openAll(page);
    expect(await page.locator(".trial-body").count()).toBe(3);
    const shown = await page.locator("main").innerText();
    for (const attack of ATTACKS.split("\n").slice(0, 5)) expect(shown).toContain(attack);
    expect(shown).toContain(
      "\u27e8U+001B\u27e9[2J\u27e8U+001B\u27e9]0;title\u27e8U+0007\u27e9\u27e8U+202E\u27e9\u27e8U+0000\u27e9",
    );
    expect(shown).toMatch(/characters are left out/);
    expect(shown.length).toBeLessThan(2_000_000);
    expect(await page.evaluate(() => "hacked" in window)).toBe(false);
    expect(
      await page.locator("img, iframe, a, object, embed, form, script:not([type]), main style").count(),
      "the page's own script",
    ).toBe(1);
    expect(await sticksOut(page)).toEqual([]);
    expect([complaints, requests]).toEqual([[], [url]]);
  });

  test("the page's policy stops what would run or be fetched all the same", async () => {
    const contacts: string[] = [];
    const report = await readFile(join(job, "report.html"));
    await using server = createServer((request, response) => {
      contacts.push(request.url ?? "");
      response.setHeader("content-type", "text/html");
      response.end(request.url === "/report" ? report : "<body></body>");
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const attempt = (page: Page, path: string): Promise<readonly string[]> =>
      page.evaluate(async (target) => {
        const tried: string[] = [];
        const trying = async (name: string, run: () => unknown): Promise<void> => {
          try {
            await run();
            tried.push(name);
          } catch {
            // Refused.
          }
        };
        await trying("markup", () => (document.body.innerHTML = "<b>x</b>"));
        await trying("script", () => {
          const script = document.createElement("script");
          script.append("window.ran = 1");
          document.body.append(script);
          if (!("ran" in window)) throw new Error("refused");
        });
        await trying("fetch", () => fetch(target));
        await trying("style", () => {
          document.body.setAttribute("style", "opacity: 0.5");
          if (getComputedStyle(document.body).opacity !== "0.5") throw new Error("refused");
        });
        return tried;
      }, `${base}${path}`);
    await using open = await visit(`${base}/open`);
    expect(await attempt(open.page, "/without")).toEqual(["markup", "script", "fetch", "style"]);
    await using closed = await visit(`${base}/report`);
    expect(await attempt(closed.page, "/with")).toEqual([]);
    expect(contacts.filter((path) => path.startsWith("/with"))).toEqual(["/without"]);
  });

  test("JUnit XML is well-formed", async () => {
    const xml = await readFile(join(job, "junit.xml"), "utf8");
    await using visited = await visit(null);
    const parse = (text: string): Promise<readonly number[]> =>
      visited.page.evaluate((source) => {
        const parsed = new DOMParser().parseFromString(source, "application/xml");
        return ["parsererror", "testcase", "error", "script"].map((name) => parsed.getElementsByTagName(name).length);
      }, text);
    expect(await parse(xml)).toEqual([0, 3, 1, 0]);
    expect((await parse(xml.replace("</testsuites>", "\u0001")))[0]).toBeGreaterThan(0);
  });
});

test("a job that was run: its boxes one after the other, its output as text; served on loopback to whoever names loopback", async () => {
  const attack = "<script>window.hacked = 1</script>";
  const task = join(folder, "seen");
  await mkdir(join(task, "tests"), { recursive: true });
  await mkdir(join(task, "solution"));
  await writeFile(
    join(task, "task.toml"),
    `artifacts = ["/app"]
[environment]
docker_image = "${process.env["BREAKWATER_IMAGE"]}"
network_mode = "no-network"
[verifier]
environment_mode = "separate"
`,
  );
  await writeFile(join(task, "instruction.md"), "Leave something in /app.\n");
  await writeFile(
    join(task, "tests/test.sh"),
    `#!/bin/sh
printf '\\033[31m%s\\033[0m\\n' '${attack}'
head -c 10000000 /dev/zero | tr '\\0' x
printf '\\n%s\\n' '${attack}'
echo '{"reward": 1, "<b>bold</b>": 0.5}' >/logs/verifier/reward.json
`,
    { mode: 0o755 },
  );
  await writeFile(join(task, "solution/solve.sh"), "#!/bin/sh\nmkdir -p /app && echo x >'/app/<b>x</b>'\n", {
    mode: 0o755,
  });
  const run = await cli(
    "run",
    "-p",
    "seen",
    "-a",
    "oracle",
    "-k",
    "2",
    "-n",
    "2",
    "-o",
    "jobs",
    "--job-name",
    "seen",
    "--quiet",
  );
  expect(run).toMatchObject({ exitCode: 0 });

  const served = start("view", "jobs/seen", "--serve");
  const ended = once(served, "close");
  let base = "";
  for await (const chunk of served.stdout.setEncoding("utf8")) {
    base = /http:\/\/127\.0\.0\.1:\d+\//.exec(String(chunk))?.[0] ?? "";
    if (base !== "") break;
  }
  const status = (path: string, method: string, host: string): Promise<number | undefined> =>
    new Promise((resolve, reject) => {
      const call = get(`${base}${path}`, { method, headers: { host } }, (response) => {
        response.resume();
        resolve(response.statusCode);
      });
      call.on("error", reject);
    });
  const own = new URL(base).host;
  expect([
    await status("", "GET", own),
    await status("", "POST", own),
    await status("result.json", "GET", own),
  ]).toEqual([200, 405, 404]);
  expect(await status("", "GET", "example.com"), "a name that leads here").toBe(421);

  await using visited = await visit(base);
  const { page, complaints, requests } = visited;
  await openAll(page);
  const shown = await page.locator("main").innerText();
  expect(shown).toContain(attack);
  expect(shown).toContain("<b>bold</b>");
  expect(shown).not.toContain("\u001b");
  expect(await page.evaluate(() => "hacked" in window)).toBe(false);
  expect(await page.locator("main script, code b").count()).toBe(0);
  const pictures = await page.locator("svg.timeline.large").all();
  expect(pictures).toHaveLength(2);
  for (const picture of pictures) {
    const edges = (kind: string): Promise<readonly [number, number]> =>
      picture.locator(`rect.${kind}`).evaluate((it) => {
        const { left, right } = it.getBoundingClientRect();
        return [left, right] as const;
      });
    const [, agentEnds] = await edges("agent-box");
    const [verifierBegins] = await edges("verifier-box");
    expect(agentEnds).toBeLessThanOrEqual(verifierBegins + 0.5);
    expect(await picture.locator("line.gone").count()).toBe(2);
  }
  expect([complaints, requests]).toEqual([[], [base]]);
  served.kill("SIGINT");
  expect((await ended)[0]).toBe(0);
});
