import { spawn } from "node:child_process";
import { once } from "node:events";
import { describe, expect, it } from "vitest";

import { boxHelperPath, boxHelperVersion } from "./index.ts";

const architecture = process.arch === "arm64" ? "arm64" : "amd64";

describe("box-helper", () => {
  it("is built for both architectures", () => {
    expect(boxHelperVersion("amd64")).toMatch(/^[0-9a-f]{12}$/);
    expect(boxHelperVersion("arm64")).not.toBe(boxHelperVersion("amd64"));
  });

  it.runIf(process.platform === "linux")("says what is wrong as JSON", async () => {
    const child = spawn(boxHelperPath(architecture), ["no-such-verb"], { stdio: ["ignore", "pipe", "inherit"] });
    const chunks: Buffer[] = [];
    child.stdout.on("data", (chunk: Buffer) => chunks.push(chunk));
    const [exitCode] = (await once(child, "close")) as [number];
    expect(exitCode).toBe(64);
    expect(JSON.parse(Buffer.concat(chunks).toString())).toEqual({
      error: { code: "ERR_USAGE", message: "unknown verb no-such-verb" },
    });
  });
});
