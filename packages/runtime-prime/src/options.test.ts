import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { isRuntimeError } from "@breakwater/runtime-api";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { findAccount } from "./options.ts";

let folder: string;
let configPath: string;
const nowhere = "/nowhere/config.json";

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "prime-options-"));
  configPath = join(folder, "config.json");
  const config = { api_key: "of-the-file", team_id: "team-of-the-file", base_url: "https://file.example/api/v1" };
  await writeFile(configPath, JSON.stringify(config));
});

afterAll(async () => {
  await rm(folder, { recursive: true });
});

describe("findAccount", () => {
  it("takes the option before the environment before the file", async () => {
    const environment = { PRIME_API_KEY: "of-the-environment", PRIME_API_BASE_URL: "https://environment.example/" };
    expect((await findAccount({ apiKey: "of-the-option", configPath }, environment)).authorization).toBe(
      "Bearer of-the-option",
    );
    const account = await findAccount({ configPath }, environment);
    expect([account.authorization, account.baseUrl.href, account.teamId]).toEqual([
      "Bearer of-the-environment",
      "https://environment.example/",
      "team-of-the-file",
    ]);
    expect((await findAccount({ configPath }, {})).authorization).toBe("Bearer of-the-file");
    expect((await findAccount({ configPath }, {})).baseUrl.href).toBe("https://file.example/");
  });

  it("takes an empty team for none", async () => {
    expect((await findAccount({ configPath }, { PRIME_TEAM_ID: "" })).teamId).toBeNull();
  });

  it("names all three places when there is no key", async () => {
    const error = await findAccount({ configPath: nowhere }, {}).catch((reason: unknown) => reason);
    expect(isRuntimeError(error, "ERR_BACKEND_AUTH")).toBe(true);
    expect((error as Error).message).toMatch(/apiKey.*PRIME_API_KEY.*\/nowhere\/config\.json/);
  });

  it("takes a file that is not JSON for an empty one", async () => {
    const path = join(folder, "broken.json");
    await writeFile(path, "{");
    expect((await findAccount({ configPath: path, apiKey: "key" }, {})).teamId).toBeNull();
  });

  it("does not show the key when it is printed", async () => {
    const account = await findAccount({ apiKey: "a-secret-key", configPath: nowhere }, {});
    expect(inspect(account, { showHidden: true, depth: 5 }) + JSON.stringify(account)).not.toContain("a-secret-key");
  });

  it("refuses an address that is none", async () => {
    await expect(findAccount({ apiKey: "key", baseUrl: "api.example", configPath: nowhere }, {})).rejects.toThrow(
      TypeError,
    );
  });
});
