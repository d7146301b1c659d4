// node --conditions=@breakwater/source packages/conformance/scripts/generate-docs.ts: writes docs/conformance.md and case-ids.txt.
import { writeFile } from "node:fs/promises";
import { conformanceCases } from "../src/list.ts";
import { casesAsMarkdown } from "../src/markdown.ts";

await writeFile(new URL("../../../docs/conformance.md", import.meta.url), casesAsMarkdown(conformanceCases));
const ids = conformanceCases.map((it) => `${it.id}\n`).toSorted();
await writeFile(new URL("../case-ids.txt", import.meta.url), ids.join(""));
console.log(`${ids.length} cases`);
