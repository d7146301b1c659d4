/**
 * What the agent is told. Harbor marks tasks with canary lines, which agents must not see: leading lines that are an HTML comment or a
 * `#` line with "canary" in it are dropped, and blank lines before and after them (reference: Harbor, `models/task/task.py`).
 */
export function stripCanary(text: string): string {
  const lines = text.split("\n");
  let first = 0;
  while (first < lines.length && isCanary(lines[first] ?? "")) first++;
  while (first < lines.length && (lines[first] ?? "").trim() === "") first++;
  return lines.slice(first).join("\n");
}

function isCanary(line: string): boolean {
  const trimmed = line.trim();
  if (!/canary/i.test(trimmed)) return false;
  return trimmed.startsWith("#") || (trimmed.startsWith("<!--") && trimmed.endsWith("-->"));
}

/** The instruction with further texts after it, each separated by one empty line. */
export function joinInstructions(instruction: string, extra: readonly string[]): string {
  if (extra.length === 0) return instruction;
  return [instruction, ...extra].map((text) => text.replace(/^\n+|\n+$/g, "")).join("\n\n");
}
