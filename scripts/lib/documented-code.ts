import { globSync } from "node:fs";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { command, root } from "./command.ts";
import type { CheckResult } from "./check-result.ts";

/** Beside `acceptance`, which depends on every package: the code of a page may import any of them. */
const FOLDER = "acceptance/.documented-code";

/**
 * The ```ts blocks of all pages have to compile. "```ts no-check" is for a block that cannot (a fragment, a type repeated
 * for the reader).
 */
export async function checkDocumentedCode(): Promise<CheckResult> {
  const pages = globSync(["README.md", "docs/**/*.md", "packages/*/README.md", "backends/**/README.md"], { cwd: root });
  const folder = join(root, FOLDER);
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder);
  try {
    let count = 0;
    for (const page of pages.toSorted()) {
      const text = await readFile(join(root, page), "utf8");
      for (const block of codeBlocks(text)) {
        count += 1;
        // The file's name is what the compiler's message shows: the page and the line where the block begins.
        const name = `${page.replaceAll("/", "__")}.line-${block.line}.ts`;
        await writeFile(join(folder, name), `${block.code}\nexport {};\n`);
      }
    }
    if (count === 0) return { outcome: "not run", reason: "no page has TypeScript code" };
    const settings = {
      extends: "../../tsconfig.base.json",
      // Examples are for reading: they need not annotate exports or use every name.
      compilerOptions: { noEmit: true, declaration: false, isolatedDeclarations: false, noUnusedLocals: false },
      include: ["*.ts"],
    };
    await writeFile(join(folder, "tsconfig.json"), JSON.stringify(settings));
    const types = await command(["tsc", "-p", FOLDER], { output: "capture", timeoutMs: 120_000 });
    // What is wrong in the packages themselves is another check's to say.
    const complaints = types.stdout.split("\n").filter((line) => line.startsWith(FOLDER));
    return complaints.length === 0 ? { outcome: "passed" } : { outcome: "failed", output: complaints.join("\n") };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

interface CodeBlock {
  readonly code: string;
  readonly line: number;
}

export function codeBlocks(markdown: string): readonly CodeBlock[] {
  const blocks: CodeBlock[] = [];
  let open: { readonly line: number; readonly isChecked: boolean; readonly lines: string[] } | undefined;
  for (const [index, line] of markdown.split("\n").entries()) {
    const fence = /^```(.*)$/.exec(line)?.[1]?.trim();
    if (fence === undefined) open?.lines.push(line);
    else if (open === undefined) {
      const [language, ...flags] = fence.split(/\s+/);
      const isChecked = (language === "ts" || language === "typescript") && !flags.includes("no-check");
      open = { line: index + 2, isChecked, lines: [] };
    } else {
      if (open.isChecked) blocks.push({ line: open.line, code: open.lines.join("\n") });
      open = undefined;
    }
  }
  return blocks;
}
