import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { loadDriver } from "./load-driver.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "breakwater-driver-"));
  await writeFile(join(folder, "package.json"), JSON.stringify({ type: "module", main: "./driver.mjs" }));
  await writeFile(join(folder, "driver.mjs"), 'export default () => ({ name: "mine", create() {}, probe() {} });');
  await writeFile(join(folder, "not-a-driver.mjs"), "export default () => ({});");
  await writeFile(join(folder, "no-default.mjs"), "export const driver = 1;");
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe("loadDriver", () => {
  it("takes a file and a folder", async () => {
    expect((await loadDriver("./driver.mjs", folder)).name).toBe("mine");
    expect((await loadDriver(folder, "/")).name).toBe("mine");
  });

  it.each([
    ["./missing.mjs", /does not exist/],
    ["./not-a-driver.mjs", /not a RuntimeDriver/],
    ["./no-default.mjs", /no default export/],
    ["no-such-driver-package", /is not installed; npm install no-such-driver-package/],
  ])("says what is wrong with %s", async (name, message) => {
    await expect(loadDriver(name, folder)).rejects.toThrow(message);
  });
});
