import { boxImage } from "@breakwater/driver-kit";
import { parseRuntimeSpec, type RuntimeSpec, type RuntimeSpecInput } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";
import { containerOptions, execOptions } from "./translate.ts";

const plain = boxImage("sha256:1");

function spec(input: Partial<RuntimeSpecInput> = {}): RuntimeSpec {
  return parseRuntimeSpec({ image: "debian", ...input });
}

function options(input: Partial<RuntimeSpecInput> = {}): ReturnType<typeof containerOptions> {
  return containerOptions(spec(input), plain, { name: "box", labels: { a: "b" } }, { mode: "none", nameServers: [] });
}

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
});

describe("a program", () => {
  it("is started by our helper, as root, in a folder that is always there", () => {
    expect(execOptions(["/.breakwater/helper", "exec", "id"])).toMatchObject({
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
