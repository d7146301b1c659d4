import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

/*
 * The one page of a report. Whatever a job has left is in it as JSON, in elements that browsers do not run; the page's own script makes text of it. Its policy lets nothing
 * but that script run, nothing be fetched, and no text become markup.
 */

export interface PageParts {
  readonly begin: string;
  /** An element with JSON. */
  readonly data: (id: string, json: string) => string;
  readonly end: string;
}

export function pageParts(): PageParts {
  const style = asset("report.css");
  const script = asset("report.js");
  return {
    begin: `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy(style, script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>Breakwater report</title>
<style>${style}</style>
</head>
<body>
<noscript>This report needs JavaScript; summary.md beside it has the totals.</noscript>
<main id="report"></main>
`,
    data: (id, json) => `<script type="application/json" id="${id}">${inScript(json)}</script>\n`,
    end: `<script>${script}</script>\n</body>\n</html>\n`,
  };
}

/** The same JSON, without what could end the element that it stands in. */
export function inScript(json: string): string {
  return json.replaceAll("<", "\\u003c");
}

/** What is not named is forbidden. */
function policy(style: string, script: string): string {
  return [
    "default-src 'none'",
    `style-src '${hash(style)}'`,
    `script-src '${hash(script)}'`,
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; ");
}

function hash(text: string): string {
  return `sha256-${createHash("sha256").update(text).digest("base64")}`;
}

/** Beside `src` and `dist`. */
function asset(name: string): string {
  return readFileSync(new URL(`../page/${name}`, import.meta.url), "utf8");
}
