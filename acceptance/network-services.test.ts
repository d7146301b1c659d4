import { dockerDriver } from "@breakwater/runtime-docker";
import { afterAll, describe, expect, test } from "vitest";
import { image } from "./support/backend.ts";
import { notSealed } from "./support/sealed.ts";

/* One policy for a box and the services beside it, at the start and after a change. Runs where there is a fake internet: "blocked" says nothing where nothing answers. */

const driver = dockerDriver();
afterAll(() => driver[Symbol.asyncDispose]());

/** What the reach of something is, in one word; fails if it is not reached. */
const look = (url: string): readonly string[] => [
  "python3",
  "-c",
  `import sys, urllib.request\ntry:\n  urllib.request.urlopen("${url}", timeout=10)\nexcept OSError:\n  sys.exit("blocked")`,
];
const [LISTED, OTHER, PEER] = ["https://example.com/", "https://github.com/", "http://peer:8000/"] as const;

describe.skipIf(notSealed !== null)("services under a policy", () => {
  test("an allowlist, and a change to no-network, hold for the box and its service alike, and they reach each other", async () => {
    const list = { mode: "allowlist", hosts: ["example.com"] } as const;
    const box = driver.create({
      image,
      network: { initial: list, later: [{ mode: "public" }, { mode: "no-network" }] },
      services: [
        {
          name: "peer",
          image,
          command: ["python3", "-m", "http.server", "8000"],
          healthcheck: { argv: look(PEER), intervalMs: 1000, timeoutMs: 20_000, startPeriodMs: 0, retries: 60 },
        },
      ],
    });
    const reached = async (): Promise<readonly string[]> => {
      const seen: string[] = [];
      for (const [who, where] of [["main", box] as const, ["peer", box.service("peer")] as const]) {
        for (const url of [LISTED, OTHER, PEER])
          if ((await where.exec(look(url), { timeoutMs: 60_000 })).exitCode === 0) seen.push(`${who} ${url}`);
      }
      return seen;
    };
    const both = (...urls: readonly string[]): readonly string[] =>
      ["main", "peer"].flatMap((who) => urls.map((url) => `${who} ${url}`));
    try {
      await box.start();
      expect(await reached()).toEqual(both(LISTED, PEER));
      await box.setNetwork({ mode: "no-network" });
      expect(await reached()).toEqual(both(PEER));
      await box.setNetwork({ mode: "public" });
      expect(await reached()).toEqual(both(LISTED, OTHER, PEER));
      await box.setNetwork(list);
      expect(await reached()).toEqual(both(LISTED, PEER));
    } finally {
      await box[Symbol.asyncDispose]();
    }
  }, 600_000);
});
