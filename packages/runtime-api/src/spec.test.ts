import { describe, expect, it } from "vitest";
import {
  DEFAULT_LIFETIME_MS,
  DEFAULT_PIDS_LIMIT,
  isAbsolutePath,
  isEnvironmentName,
  parseRuntimeSpec,
} from "./spec.ts";
import type { RuntimeSpecInput } from "./spec.ts";

const parse = (input: Omit<Partial<RuntimeSpecInput>, "image"> & { readonly image?: string }): unknown =>
  parseRuntimeSpec({ image: "debian", ...input });

describe("a spec", () => {
  it("has every default filled in", () => {
    expect(parseRuntimeSpec({ image: " debian " })).toEqual({
      image: "debian",
      env: {},
      workdir: null,
      user: null,
      cpus: null,
      memoryMb: null,
      storageMb: null,
      pidsLimit: DEFAULT_PIDS_LIMIT,
      gpus: 0,
      network: { initial: { mode: "public" }, later: [] },
      services: [],
      dependsOn: {},
      volumes: [],
      lifetimeMs: DEFAULT_LIFETIME_MS,
      entrypoint: true,
      operatingSystem: "linux",
      trial: null,
    });
    expect([DEFAULT_PIDS_LIMIT, DEFAULT_LIFETIME_MS]).toEqual([4096, 21_600_000]);
  });

  it("keeps what is given, byte for byte", () => {
    const given = {
      image: "registry:5000/a@sha256:0",
      env: { A: 'HAHA "x" $HOME \\n', B: "\n", C: "", D: "=", E: "-e" },
      workdir: "/home/u",
      user: "u:1000",
      cpus: 0.5,
      memoryMb: 512,
      storageMb: 1,
      pidsLimit: 10,
      gpus: 1,
      lifetimeMs: 1000,
      entrypoint: false,
      operatingSystem: "windows",
      trial: "t",
      services: [{ name: "db", image: "x" }],
    } as const;
    expect(parseRuntimeSpec(given)).toMatchObject(given);
  });

  it("is frozen all the way down, and shares nothing with what was given", () => {
    const env = { A: "1" };
    const services = [{ name: "db", image: "x", env: { B: "2" } }];
    const spec = parseRuntimeSpec({
      image: "x",
      env,
      services,
      network: { initial: { mode: "allowlist", hosts: ["a.com"] } },
    });
    const inside = [
      spec,
      spec.env,
      spec.network,
      spec.network.initial,
      spec.network.later,
      spec.services,
      spec.services[0],
      spec.services[0]?.env,
    ];
    expect(inside.every((value) => Object.isFrozen(value))).toBe(true);
    env.A = "changed";
    expect(spec.env).toEqual({ A: "1" });
    expect(Object.isFrozen(env) || Object.isFrozen(services) || Object.isFrozen(services[0])).toBe(false);
  });

  it("announces each later policy once, in canonical form", () => {
    const { network } = parseRuntimeSpec({
      image: "x",
      network: {
        initial: { mode: "allowlist", hosts: ["A.com"] },
        later: [
          { mode: "no-network" },
          { mode: "allowlist", hosts: ["a.com."] },
          { mode: "allowlist", hosts: [] },
          { mode: "public" },
        ],
      },
    });
    expect(network).toEqual({
      initial: { mode: "allowlist", hosts: ["a.com"] },
      later: [{ mode: "no-network" }, { mode: "public" }],
    });
  });

  it.each<[Parameters<typeof parse>[0], string]>([
    [{ image: "" }, "image"],
    [{ image: "  " }, "image"],
    [{ image: 5 as unknown as string }, "image"],
    [{ env: { "": "x" } }, "env"],
    [{ env: { "A=B": "x" } }, "env"],
    [{ env: { "A\0": "x" } }, "env"],
    [{ env: { A: "\0" } }, "env.A"],
    [{ env: { A: 5 as unknown as string } }, "env.A"],
    [{ workdir: "app" }, "workdir"],
    [{ workdir: "/a/../b" }, "workdir"],
    [{ user: "" }, "user"],
    [{ user: "a b" }, "user"],
    [{ user: "a:b:c" }, "user"],
    [{ user: ":b" }, "user"],
    [{ user: "a\n" }, "user"],
    [{ user: "a\0b" }, "user"],
    [{ user: "a:\0" }, "user"],
    [{ cpus: 0 }, "cpus"],
    [{ cpus: Number.POSITIVE_INFINITY }, "cpus"],
    [{ cpus: Number.NaN }, "cpus"],
    [{ memoryMb: 0.5 }, "memoryMb"],
    [{ memoryMb: -1 }, "memoryMb"],
    [{ storageMb: 0 }, "storageMb"],
    [{ pidsLimit: 0 }, "pidsLimit"],
    [{ gpus: -1 }, "gpus"],
    [{ gpus: 0.5 }, "gpus"],
    [{ lifetimeMs: 0 }, "lifetimeMs"],
    [{ lifetimeMs: Number.POSITIVE_INFINITY }, "lifetimeMs"],
    [{ trial: "" }, "trial"],
    [{ trial: "x".repeat(201) }, "trial"],
    [{ network: { initial: { mode: "allowlist", hosts: ["a:1"] } } }, "network.initial"],
    [
      { network: { initial: { mode: "public" }, later: [{ mode: "no-network" }, { mode: "x" as "public" }] } },
      "network.later[1]",
    ],
  ])("%o is a mistake in %s", (input, key) => {
    expect(() => parse(input)).toThrow(TypeError);
    expect(() => parse(input)).toThrow(`${key}: `);
  });

  it("has all its mistakes named at once", () => {
    const wrong = { image: "", cpus: -1, user: "", trial: "" };
    expect(() => parse(wrong)).toThrow(/image: .*; user: .*; cpus: .*; trial: /);
  });
});

it.each([
  ["/", true],
  ["/a/./b//c", true],
  ["/a/..b", true],
  ["", false],
  ["a", false],
  ["/a/..", false],
  ["/..", false],
  ["/a\0", false],
])("isAbsolutePath(%j) is %s", (path, expected) => {
  expect(isAbsolutePath(path)).toBe(expected);
});

it.each([
  ["A", true],
  ["a-b.c é", true],
  ["", false],
  ["A=", false],
  ["\0", false],
])("isEnvironmentName(%j) is %s", (name, expected) => {
  expect(isEnvironmentName(name)).toBe(expected);
});
