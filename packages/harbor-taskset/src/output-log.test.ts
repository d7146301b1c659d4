import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { OutputLog } from "./output-log.ts";
import { createRedactor } from "./redact.ts";

let directory = "";
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "breakwater-output-"));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

describe("the output of a program", () => {
  it("is kept whole if it is short", () => {
    const log = new OutputLog(null, createRedactor([]));
    log.write("one ");
    log.write(Buffer.from("two"));
    expect(log.end()).toEqual({ head: "one two", tail: "", bytes: 7, truncated: false });
  });

  it("is kept whole up to the size of both ends", () => {
    const log = new OutputLog(null, createRedactor([]));
    for (let count = 0; count < 64; count++) log.write("x".repeat(1024));
    const { head, tail, truncated } = log.end();
    expect([head.length, tail, truncated]).toEqual([64 * 1024, "", false]);
  });

  it("is kept at both ends if it is long", () => {
    const log = new OutputLog(null, createRedactor([]));
    log.write(`the beginning${"x".repeat(100_000)}`);
    log.write(`${"y".repeat(100_000)}the end`);
    const { head, tail, bytes, truncated } = log.end();
    expect(head).toMatch(/^the beginningx+$/);
    expect(tail).toMatch(/^y+the end$/);
    expect([head.length, tail.length, bytes, truncated]).toEqual([64 * 1024, 64 * 1024, 200_020, true]);
  });

  it("has no secret in it, also where one lies across two chunks", async () => {
    const file = join(directory, "secret.txt");
    const log = new OutputLog(file, createRedactor(["hunter22"]));
    log.write("the password is hun");
    log.write("ter22, really");
    expect(log.end().head).toBe("the password is [REDACTED], really");
    expect(await readFile(file, "utf8")).toBe("the password is [REDACTED], really");
  });

  it("takes nothing any more once it has ended", () => {
    const log = new OutputLog(null, createRedactor([]));
    log.write("in time");
    expect(log.end().head).toBe("in time");
    log.write("too late");
    expect(log.end().head).toBe("in time");
  });
});
