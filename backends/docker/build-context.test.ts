import { execFileSync } from "node:child_process";

import { describe, expect, it } from "vitest";

import { buildContext } from "./build-context.ts";

describe("buildContext", () => {
  const archive = buildContext([
    { name: "Dockerfile", content: "FROM scratch\n" },
    { name: "bin/tool", content: Buffer.alloc(1000, 7), mode: 0o755 },
  ]);

  it("is an archive that tar reads", () => {
    const listing = execFileSync("tar", ["-tvf", "-"], { input: archive, encoding: "utf8" }).trim().split("\n");
    expect(listing.map((line) => line.replace(/\s+/g, " "))).toEqual([
      expect.stringMatching(/^-rw-r--r-- 0\/0 13 .* Dockerfile$/),
      expect.stringMatching(/^-rwxr-xr-x 0\/0 1000 .* bin\/tool$/),
    ]);
    expect(execFileSync("tar", ["-xOf", "-", "bin/tool"], { input: archive })).toEqual(Buffer.alloc(1000, 7));
  });

  it("is the same for the same files", () => {
    expect(buildContext([{ name: "a", content: "b" }])).toEqual(buildContext([{ name: "a", content: "b" }]));
  });
});
