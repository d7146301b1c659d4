"use strict";

// The page of `report.html`. All that comes from a job becomes text, by textContent; nothing here makes markup of a string, and the page's policy would not let it.

/** How many trials are shown at a time. */
const PAGE = 100;
const REWARD_PANELS = 3;

const OUTCOMES = {
  passed: "passed",
  failed: "not passed",
  graded: "several rewards",
  "no-reward": "no reward",
  unfinished: "unfinished",
};

const SPANS = {
  images: "images are prepared",
  "agent-box": "agent's box",
  agent: "agent works",
  frozen: "frozen",
  "verifier-box": "verifier's box",
  tests: "tests run",
};

const job = JSON.parse(byId("job").textContent);
const trials = job.trials.map((trial, index) => ({ ...trial, index }));

/* Making elements */

function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`there is no element ${id}`);
  return found;
}

function el(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

function svg(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A column is [title, kind of cell]: "", "short", "long" or "number". */
function table(columns, rows) {
  const head = el("tr", null, ...columns.map(([title]) => el("th", null, title)));
  const body = rows.map((cells) =>
    el(
      "tr",
      null,
      ...cells.map((cell, at) => el("td", { class: columns[at][1], "data-title": columns[at][0] }, cell ?? "-")),
    ),
  );
  const made = el("table", { class: "list" }, el("thead", null, head), el("tbody", null, ...body));
  return el("div", { class: "scroll", tabindex: "0" }, made);
}

function code(text) {
  return el("code", null, text);
}

/* Numbers */

function percent(value) {
  return `${(value * 100).toFixed(1)} %`;
}

function number(value) {
  return Math.abs(value) >= 1e6 ? value.toExponential(3) : String(Math.round(value * 10_000) / 10_000);
}

function seconds(ms) {
  if (ms === null) return "-";
  if (ms < 100_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  const rest = `${String(Math.floor((ms % 60_000) / 1000)).padStart(2, "0")} s`;
  return minutes < 60 ? `${minutes} min ${rest}` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function bytes(count) {
  return count < 10_000
    ? `${count} B`
    : count < 10_000_000
      ? `${Math.round(count / 1000)} kB`
      : `${Math.round(count / 1e6)} MB`;
}

function estimate(found, show) {
  if (found === null) return "-";
  return `${show(found.value)}${range(found.interval, show)}`;
}

function range(interval, show) {
  return interval === null ? "" : ` [${show(interval.low)}, ${show(interval.high)}]`;
}

function moment(iso) {
  return iso === null ? "-" : iso.replace("T", " ").replace(/\.\d+Z$/, " UTC");
}

/* The page */

function report() {
  const { totals } = job;
  return [
    el("h1", null, job.name),
    el("p", { class: "quiet" }, `${moment(totals.startedAt)} to ${moment(totals.endedAt)}`),
    cards(totals),
    el("h2", null, "Totals"),
    el("div", { class: "panels" }, ...totals.groups.map(groupPanel)),
    el(
      "p",
      { class: "quiet" },
      "Passed is a reward of 1 or more. Trials without a reward are in no mean. Brackets are intervals of 95 % confidence for tasks like these; where there is one task, for its attempts.",
    ),
    ...section("Rewards", totals.rewards, distributions),
    ...section("Errors", totals.errors, errorTable),
    ...trialList(),
  ];
}

function section(title, list, make) {
  return list.length === 0 ? [] : [el("h2", null, title), make(list)];
}

function cards({ trials: count, expectedTrials, outcomes, tasks, denied, leftovers }) {
  const card = (value, label, kind) =>
    el("div", { class: "card" }, el("b", { class: kind ?? "" }, String(value)), label);
  const of = expectedTrials === null || expectedTrials === count ? "" : ` of ${expectedTrials}`;
  const optional = (value, label, kind) => (value === 0 ? null : card(value, label, kind));
  return el(
    "div",
    { class: "cards" },
    card(`${count}${of}`, "trials"),
    card(tasks, "tasks"),
    card(outcomes.passed, "passed", "good"),
    card(outcomes.failed, "not passed"),
    optional(outcomes.graded, "several rewards"),
    card(outcomes["no-reward"], "without a reward", outcomes["no-reward"] > 0 ? "bad" : ""),
    optional(outcomes.unfinished, "unfinished"),
    optional(denied, "connections denied"),
    optional(leftovers, "not shown to be gone", "bad"),
  );
}

function groupPanel(group) {
  const rows = [
    ["trials with a reward", `${group.graded} of ${group.trials}`],
    ["pass rate", estimate(group.passRate, percent)],
    ["mean reward", estimate(group.meanReward, number)],
    ...group.passAtK.map((each) => [`pass@${each.k}`, estimate(each, percent)]),
  ];
  const body = rows.map(([title, value]) => el("tr", null, el("th", null, title), el("td", null, value)));
  return el("div", { class: "panel" }, el("h3", null, group.name), el("table", null, el("tbody", null, ...body)));
}

/** The most telling ones; the others are to be opened. */
function distributions(rewards) {
  const panels = (some) => el("div", { class: "panels" }, ...some.map(distribution));
  const others = rewards.slice(REWARD_PANELS);
  const rest =
    others.length === 0
      ? null
      : el("details", { class: "part" }, el("summary", null, `${others.length} more`), panels(others));
  return el("div", null, panels(rewards.slice(0, REWARD_PANELS)), rest);
}

function distribution({ key, trials: count, mean, bars }) {
  const most = Math.max(...bars.map((bar) => bar.trials));
  const lines = bars.flatMap(({ from, to, trials: inBar }) => [
    el("span", null, from === to ? number(from) : `${number(from)} to ${number(to)}`),
    svg(
      "svg",
      { class: "bar", "aria-hidden": "true" },
      svg("rect", { class: "track", width: "100%", height: "12" }),
      svg("rect", { class: "agent", width: `${(inBar / most) * 100}%`, height: "12" }),
    ),
    el("span", null, String(inBar)),
  ]);
  return el(
    "div",
    { class: "panel" },
    el("h3", null, code(key)),
    el("p", { class: "quiet" }, `mean ${number(mean)} over ${count} trials`),
    el("div", { class: "bars" }, ...lines),
  );
}

function errorTable(errors) {
  const columns = [
    ["code", "short"],
    ["reason", "short"],
    ["phase", "short"],
    ["trials", "number"],
    ["for instance", "long"],
  ];
  return table(
    columns,
    errors.map((error) => {
      const show = el("button", { class: "link", type: "button" }, error.code);
      show.addEventListener("click", () => showOnly(error.code));
      return [show, error.reason, error.phase, String(error.trials), error.example];
    }),
  );
}

/* The list of trials */

const list = el("div", { id: "trials" });
const counted = el("p", { class: "quiet", role: "status" });
const more = el("button", { type: "button" }, "Show more");
const search = el("input", { type: "search", size: "24" });
const outcome = el("select", null, el("option", { value: "" }, "all"), ...options(OUTCOMES));
const order = el(
  "select",
  null,
  ...options({ name: "name", start: "start", time: "longest first", reward: "lowest reward first" }),
);
let found = trials;
let shown = 0;

function options(texts) {
  return Object.entries(texts).map(([value, text]) => el("option", { value }, text));
}

function trialList() {
  for (const control of [search, outcome, order]) control.addEventListener("input", select);
  more.addEventListener("click", showMore);
  select();
  return [
    el("h2", { id: "list" }, "Trials"),
    el(
      "div",
      { class: "controls" },
      el("label", null, "Find", search),
      el("label", null, "Outcome", outcome),
      el("label", null, "Order", order),
    ),
    legend(),
    list,
    counted,
    more,
  ];
}

function legend() {
  const entries = Object.entries(SPANS).map(([kind, text]) =>
    el(
      "span",
      null,
      svg("svg", { "aria-hidden": "true" }, svg("rect", { class: kind, width: "18", height: "12" })),
      text,
    ),
  );
  const line = svg("line", { class: "gone", x1: "9", x2: "9", y1: "0", y2: "12" });
  return el(
    "div",
    { class: "legend" },
    ...entries,
    el("span", null, svg("svg", { "aria-hidden": "true" }, line), "box is proven gone"),
  );
}

function showOnly(text) {
  search.value = text;
  outcome.value = "";
  select();
  byId("list").scrollIntoView();
}

function select() {
  const wanted = search.value.trim().toLowerCase();
  const orders = {
    name: (a, b) => a.index - b.index,
    start: (a, b) => ((a.startedAt ?? "") < (b.startedAt ?? "") ? -1 : 1),
    time: (a, b) => (b.durationMs ?? 0) - (a.durationMs ?? 0),
    reward: (a, b) => (a.reward ?? -Infinity) - (b.reward ?? -Infinity) || a.index - b.index,
  };
  found = trials
    .filter((trial) => outcome.value === "" || trial.outcome === outcome.value)
    .filter(({ name, task, error }) => `${name}\n${task}\n${error?.code ?? ""}`.toLowerCase().includes(wanted))
    .sort(orders[order.value] ?? orders.name);
  shown = 0;
  list.replaceChildren();
  showMore();
}

function showMore() {
  list.append(...found.slice(shown, shown + PAGE).map(trialRow));
  shown = Math.min(found.length, shown + PAGE);
  counted.textContent = `${shown} of ${found.length} trials${found.length === trials.length ? "" : ` (${trials.length} in all)`}`;
  more.hidden = shown === found.length;
}

function trialRow(trial) {
  const good = trial.outcome === "passed" ? "good" : trial.outcome === "no-reward" ? "bad" : "";
  const row = el(
    "details",
    { class: "trial" },
    el(
      "summary",
      null,
      el("span", { class: "name" }, trial.name),
      el("span", { class: `outcome ${good}` }, outcomeText(trial)),
      el("span", { class: "picture" }, timeline(trial.timeline, "")),
      el("span", { class: "time" }, seconds(trial.durationMs)),
    ),
  );
  row.addEventListener("toggle", () => {
    if (row.open && row.childElementCount === 1) row.append(trialBody(trial));
  });
  return row;
}

function outcomeText(trial) {
  if (trial.reward !== null) return `reward ${number(trial.reward)}`;
  return trial.error === null ? OUTCOMES[trial.outcome] : trial.error.code;
}

/* The picture of a trial: above the agent's box, below the verifier's, a line where one is proven gone */

function timeline(found, size) {
  if (found === null) return "";
  const large = size === "large";
  const scale = found.durationMs === 0 ? 0 : 100 / found.durationMs;
  const lane = large ? 20 : 9;
  const below = large ? 26 : 13;
  const shapes = found.spans.map(({ kind, fromMs, toMs, step }) => {
    const isBox = kind === "agent-box" || kind === "verifier-box";
    // Tests of a shared trial run in the agent's box.
    const isBelow = kind === "verifier-box" || (kind === "tests" && isIn(found, "verifier-box", fromMs));
    const inset = isBox || kind === "images" ? 0 : lane / 4;
    return svg(
      "rect",
      {
        class: kind,
        x: `${fromMs * scale}%`,
        width: `${Math.max(0.15, (toMs - fromMs) * scale)}%`,
        y: String((isBelow ? below : 0) + inset),
        height: String(lane - 2 * inset),
      },
      svg("title", {}, `${SPANS[kind]}${step === null ? "" : ` (${step})`}: ${seconds(fromMs)} to ${seconds(toMs)}`),
    );
  });
  const lines = found.gone.map(({ box, atMs }) => {
    const at = `${Math.min(99.9, atMs * scale)}%`;
    const from = box === "agent" ? 0 : below;
    return svg(
      "line",
      { class: "gone", x1: at, x2: at, y1: String(from), y2: String(from + lane + (box === "agent" ? 3 : 0)) },
      svg("title", {}, `${box}'s box is proven gone: ${seconds(atMs)}`),
    );
  });
  lines.push(
    ...found.resumedMs.map((atMs) => {
      const at = `${atMs * scale}%`;
      return svg(
        "line",
        { class: "resumed", x1: at, x2: at, y1: "0", y2: String(below + lane) },
        svg("title", {}, "went on in another process"),
      );
    }),
  );
  const label = [
    ...found.spans
      .filter(({ kind }) => kind !== "images")
      .map(({ kind, fromMs, toMs }) => `${SPANS[kind]} ${seconds(fromMs)} to ${seconds(toMs)}`),
    ...found.gone.map(({ box, atMs }) => `${box}'s box proven gone at ${seconds(atMs)}`),
  ].join(", ");
  return svg("svg", { class: `timeline ${size}`, role: "img", "aria-label": label }, ...shapes, ...lines);
}

function isIn(found, kind, atMs) {
  return found.spans.some((span) => span.kind === kind && span.fromMs <= atMs && atMs <= span.toMs);
}

/* All of one trial, made when it is opened */

function trialBody(trial) {
  const details = JSON.parse(byId(`trial-${trial.index}`).textContent);
  const rounds = details.rounds ?? [];
  return el(
    "div",
    { class: "trial-body" },
    el("p", null, "Task ", code(trial.task), `, ${trial.kind}`, trial.group === "" ? "" : `, ${trial.group}`),
    el(
      "p",
      { class: "quiet" },
      `${moment(trial.startedAt)}${details.driver === undefined ? "" : `, driver ${details.driver}`}`,
    ),
    details.directory ? el("p", { class: "quiet" }, code(details.directory)) : null,
    details.shortened ? el("p", { class: "quiet" }, "Some of it is left out here; the trial's folder has all.") : null,
    details.problem ? el("p", { class: "bad" }, details.problem) : null,
    ...errorPart(details.error),
    ...picturePart(trial),
    ...rewardPart(trial, details),
    ...rounds.flatMap((round) => roundPart(round)),
    ...part("Tried before", details.retries, retryTable),
    ...sentences("Not run", details.stepsNotRun),
    ...sentences("Not shown to be gone", details.leftovers),
    ...part("Warnings", details.warnings, (each) =>
      table(
        [
          ["where", ""],
          ["what", "long"],
        ],
        each.map(({ file, key, message, advice }) => [
          `${file ?? ""} ${key ?? ""}`,
          `${message}${advice ? ` - ${advice}` : ""}`,
        ]),
      ),
    ),
    ...part("Denied connections", details.egress, (each) => egressTable(each, details.denied)),
    ...part("Not enforced here", details.notEnforced, (each) =>
      el("pre", null, each.map((one) => JSON.stringify(one)).join("\n")),
    ),
    ...folded("Plan", sentences("Plan", details.plan)),
    ...folded(
      "Images",
      part("Images", details.images, (each) =>
        table(
          [
            ["of", "short"],
            ["reference", "long"],
            ["id", "long"],
          ],
          each.map(({ of, reference, id }) => [of, code(reference), code(id)]),
        ),
      ),
    ),
    ...folded("Events", part("Events", details.events, eventTable)),
  );
}

function part(title, found, make) {
  return !Array.isArray(found) || found.length === 0 ? [] : [el("h3", null, title), make(found)];
}

/** The same, to be opened. */
function folded(title, made) {
  const body = made[1];
  return body === undefined ? [] : [el("details", { class: "part" }, el("summary", null, title), body)];
}

function sentences(title, texts) {
  return part(title, texts, (each) => el("ul", null, ...each.map((text) => el("li", null, text))));
}

function errorPart(error) {
  if (error === null || error === undefined) return [];
  return [
    el("h3", { class: "bad" }, `No reward: ${error.reason}, in phase ${error.phase}`),
    el("p", null, code(error.code), ` (may be tried again: ${error.retry})`),
    el("pre", null, [error.message, ...(error.causes ?? [])].join("\n")),
  ];
}

function picturePart(trial) {
  if (trial.timeline === null) return [];
  const { durationMs } = trial.timeline;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => el("span", null, seconds(durationMs * share)));
  return [el("h3", null, "Timeline"), timeline(trial.timeline, "large"), el("div", { class: "axis" }, ...ticks)];
}

function rewardPart(trial, details) {
  const rewards = Object.entries(details.rewards ?? {});
  const files = details.rewardFiles ?? [];
  if (rewards.length === 0 && files.length === 0) return [];
  return [
    el("h3", null, "Rewards"),
    ...(rewards.length === 0
      ? []
      : [
          table(
            [
              ["key", ""],
              ["value", "number"],
            ],
            rewards.map(([key, value]) => [code(key), String(value)]),
          ),
        ]),
    ...files.flatMap(({ path, text }) => [el("h4", null, code(path)), el("pre", null, text)]),
  ];
}

function roundPart(round) {
  const { agent, verifier } = round;
  const title = round.name === null ? [] : [el("h3", null, `Step ${round.name}`)];
  return [
    ...title,
    ...(agent
      ? [
          el("h4", null, "Agent"),
          el("p", null, agentText(agent)),
          agent.message ? el("pre", null, agent.message) : null,
        ]
      : []),
    ...part("Collect hooks", round.collectHooks, (each) =>
      table(
        [
          ["command", "long"],
          ["status", "short"],
          ["exit code", "number"],
          ["output", "long"],
        ],
        each.map(({ command, status, exitCode, message }) => [code(command), status, String(exitCode ?? "-"), message]),
      ),
    ),
    ...part(
      round.collectedFrom === null ? "Artifacts" : `Artifacts, read from the ${round.collectedFrom} box`,
      round.artifacts,
      (each) =>
        table(
          [
            ["source", "long"],
            ["status", "short"],
            ["entries", "number"],
            ["size", "number"],
            ["SHA-256", "long"],
          ],
          each.map(({ source, status, entries, bytes: size, sha256 }) => [
            code(source),
            status,
            String(entries),
            bytes(size),
            sha256 ? code(sha256) : "-",
          ]),
        ),
    ),
    ...part("Left out of the artifacts", round.artifactsRefused, (each) =>
      table(
        [
          ["source", "long"],
          ["why", "long"],
        ],
        each.map(({ source, reason, members, memberCount }) => [
          code(source),
          reason ??
            `${memberCount} members: ${(members ?? []).map(({ path, code: why }) => `${path} (${why})`).join(", ")}`,
        ]),
      ),
    ),
    ...verifierPart(verifier, round.mode),
  ].filter((each) => each !== null);
}

function agentText({ status, exitCode, durationMs, boxEndedBy }) {
  const exit = exitCode === null ? "" : `, exit code ${exitCode}`;
  return `${status} after ${seconds(durationMs)}${exit}${boxEndedBy === null ? "" : `; its box was ended by its contents (${boxEndedBy})`}`;
}

function verifierPart(verifier, mode) {
  if (!verifier) return [];
  const {
    exitCode,
    timedOut,
    durationMs,
    output,
    rewardFrom,
    rewardSha256,
    testsSha256,
    readFrom,
    boxEndedBy,
    oomKills,
  } = verifier;
  const facts = [
    timedOut ? "timed out" : `exit code ${exitCode ?? "none"}`,
    seconds(durationMs),
    rewardFrom ? `reward from ${rewardFrom}${readFrom ? ` of the ${readFrom} box` : ""}` : "no reward file was read",
    ...(boxEndedBy ? [`its box was ended by its contents (${boxEndedBy})`] : []),
    ...(oomKills ? [`${oomKills} processes killed for memory`] : []),
  ];
  const whole = output ? `${output.head}${output.tail ? `\n\u2026\n${output.tail}` : ""}` : "";
  return [
    el("h4", null, `Verifier${mode === null || mode === undefined ? "" : ` (${mode})`}`),
    el("p", null, facts.join(", ")),
    ...(rewardSha256 ? [el("p", { class: "quiet" }, "SHA-256 of the reward file ", code(rewardSha256))] : []),
    ...(testsSha256 ? [el("p", { class: "quiet" }, "SHA-256 of the tests ", code(testsSha256))] : []),
    ...(output
      ? [
          el(
            "p",
            { class: "quiet" },
            `Its output, ${bytes(output.bytes)}${output.truncated ? ", both ends of it" : ""}:`,
          ),
          el("pre", { class: "output" }, whole),
        ]
      : []),
  ];
}

function egressTable(lines, denied) {
  const count = denied ? denied.agent + denied.verifier : lines.length;
  return el(
    "div",
    null,
    el("p", { class: "quiet" }, `${count} in all`),
    table(
      [
        ["time", "short"],
        ["box", "short"],
        ["host", ""],
        ["port", "number"],
        ["refused by", ""],
      ],
      lines.map(({ at, box, host, port, rule }) => [moment(at), box, host ?? "-", String(port), rule]),
    ),
  );
}

function retryTable(retries) {
  return table(
    [
      ["when", "short"],
      ["tried again", "short"],
      ["code", "short"],
      ["why", "long"],
    ],
    retries.map(({ again, startedAt, error }) => [moment(startedAt), again, error.code, error.message]),
  );
}

function eventTable(events) {
  const start = Date.parse(events[0].at);
  return table(
    [
      ["#", "number"],
      ["after", "number"],
      ["event", "short"],
      ["step", "short"],
      ["proof and details", "long"],
    ],
    events.map(({ sequence, at, type, step, proof, details }) => [
      String(sequence),
      seconds(Date.parse(at) - start),
      type,
      step,
      el(
        "div",
        null,
        proof ? el("div", null, code(`${proof.question} -> ${proof.answer}`)) : null,
        details ? el("div", { class: "quiet" }, code(JSON.stringify(details))) : null,
      ),
    ]),
  );
}

document.title = `${job.name} - Breakwater`;
byId("report").append(...report());
