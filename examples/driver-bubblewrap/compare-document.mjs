// Every block of docs/write-a-driver.md that says `from FILE` is in that file, but for the indentation.
import { readFileSync } from "node:fs";

const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");
const flat = (text) => text.replaceAll(/^\s+/gm, "");
const blocks = [...read("../../docs/write-a-driver.md").matchAll(/<!-- from (\S+) -->\n```ts no-check\n(.*?)\n```/gs)];
const strangers = blocks.filter(([, file, code]) => !flat(read(file)).includes(flat(code)));
for (const [, file, code] of strangers) console.error(`not in ${file}:\n${code}\n`);
if (strangers.length > 0 || blocks.length < 10) process.exit(1);
