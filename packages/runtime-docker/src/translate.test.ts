import { parseRuntimeSpec, type RuntimeSpec, type RuntimeSpecInput } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";
import {
  containerOptions,
  defaultUser,
  defaultWorkdir,
  execOptions,
  holdArgv,
  imageFacts,
  programEnvironment,
} from "./translate.ts";

const plain = imageFacts({ Id: "sha256:1" });
const rich = imageFacts({
  Id: "sha256:2",
  Config: {
    Entrypoint: ["/entrypoint", "--x"],
    WorkingDir: "/srv",
    User: "1234:5",
    Env: ["PATH=/opt/bin:/bin", "A=1=2", "B="],
  },
});

function spec(input: Partial<RuntimeSpecInput> = {}): RuntimeSpec {
  return parseRuntimeSpec({ image: "debian", ...input });
}

function options(input: Partial<RuntimeSpecInput> = {}): ReturnType<typeof containerOptions> {
  return containerOptions(spec(input), plain, { name: "box", labels: { a: "b" } }, "none");
}

describe("an image", () => {
  it("without a configuration has defaults", () => {
    expect(plain).toEqual({ id: "sha256:1", entrypoint: [], workdir: null, user: null, env: [] });
    expect(imageFacts({ Id: "x", Config: { Entrypoint: "/one", WorkingDir: "", User: "" } })).toMatchObject({
      entrypoint: ["/one"],
      workdir: null,
      user: null,
    });
  });
});

describe("a box", () => {
  it("has the image that was looked at, not what its name leads to later", () => {
    expect(options()).toMatchObject({ name: "box", Image: "sha256:1", Labels: { a: "b" } });
  });

  it("has no mounts, no raw sockets, no restarts and no health check of the image", () => {
    const { HostConfig, Healthcheck } = options();
    expect(HostConfig).toMatchObject({
      NetworkMode: "none",
      CapDrop: ["NET_RAW"],
      Privileged: false,
      AutoRemove: false,
      IpcMode: "private",
      RestartPolicy: { Name: "no" },
    });
    expect(Object.keys(HostConfig ?? {})).not.toEqual(expect.arrayContaining(["Binds"]));
    expect(Object.keys(HostConfig ?? {})).not.toEqual(expect.arrayContaining(["Mounts"]));
    expect(Healthcheck).toEqual({ Test: ["NONE"] });
  });

  it("has the limits that were asked for, swap included in memory", () => {
    expect(options({ memoryMb: 64, cpus: 1.5, pidsLimit: 100 }).HostConfig).toMatchObject({
      Memory: 64 * 1024 * 1024,
      MemorySwap: 64 * 1024 * 1024,
      NanoCpus: 1_500_000_000,
      PidsLimit: 100,
    });
    expect(options({ cpus: 0.001 }).HostConfig).toMatchObject({ NanoCpus: 10_000_000 });
    expect(options().HostConfig).not.toHaveProperty("Memory");
    expect(options().HostConfig).not.toHaveProperty("NanoCpus");
  });
});

describe("the hold", () => {
  it("is the first process, as root", () => {
    expect(options({ lifetimeMs: 5000 })).toMatchObject({
      User: "0:0",
      Entrypoint: ["/.breakwater/helper", "hold", "--lifetime-ms", "5000"],
      Cmd: [],
    });
  });

  it("starts the image's ENTRYPOINT as the image's user, unless it is not wanted", () => {
    expect(holdArgv(spec({ lifetimeMs: 5000 }), rich).slice(4)).toEqual([
      "--user",
      "1234:5",
      "--cwd",
      "/srv",
      "--",
      "/entrypoint",
      "--x",
    ]);
    expect(holdArgv(spec({ entrypoint: false }), rich)).toHaveLength(4);
  });
});

describe("a program", () => {
  it("gets the image's environment, over it the spec's, over it the call's", () => {
    expect(programEnvironment(spec({ env: { A: "spec", C: "spec" } }), rich, { C: "call" })).toEqual({
      PATH: "/opt/bin:/bin",
      A: "spec",
      B: "",
      C: "call",
    });
    expect(programEnvironment(spec(), rich)["A"]).toBe("1=2");
  });

  it("always has a PATH", () => {
    expect(programEnvironment(spec(), plain)["PATH"]).toContain("/usr/bin");
  });

  it("runs as the spec's user in the spec's folder, else the image's", () => {
    expect([defaultUser(spec(), rich), defaultWorkdir(spec(), rich)]).toEqual(["1234:5", "/srv"]);
    const own = spec({ user: "me", workdir: "/w" });
    expect([defaultUser(own, rich), defaultWorkdir(own, rich)]).toEqual(["me", "/w"]);
    expect([defaultUser(spec(), plain), defaultWorkdir(spec(), plain)]).toEqual([null, "/"]);
  });

  it("is started by our helper, as root, in a folder that is always there", () => {
    expect(execOptions(["exec", "id"])).toMatchObject({
      Cmd: ["/.breakwater/helper", "exec", "id"],
      User: "0:0",
      WorkingDir: "/",
      Tty: false,
      Privileged: false,
      AttachStdin: true,
      AttachStdout: true,
      AttachStderr: true,
    });
  });
});
