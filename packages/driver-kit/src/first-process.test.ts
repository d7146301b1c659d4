import { parseRuntimeSpec, type RuntimeSpec, type RuntimeSpecInput } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";
import type { BoxImage } from "./backend-box.ts";
import { boxImage, holdArgv, programEnvironment } from "./first-process.ts";

const plain: BoxImage = { id: "sha256:1", entrypoint: [], workdir: null, user: null, env: {} };
const rich: BoxImage = {
  id: "sha256:2",
  entrypoint: ["/entrypoint", "--x"],
  workdir: "/srv",
  user: "1234:5",
  env: { PATH: "/opt/bin:/bin", A: "image", B: "image", C: "image", D: "image" },
};

function spec(input: Partial<RuntimeSpecInput> = {}): RuntimeSpec {
  return parseRuntimeSpec({ image: "debian", ...input });
}

describe("an image", () => {
  it("without a configuration has defaults", () => {
    expect(boxImage("x")).toEqual({ ...plain, id: "x" });
    expect(boxImage("x", { Entrypoint: null, WorkingDir: "", User: "", Env: null })).toEqual({ ...plain, id: "x" });
  });

  it("has its configuration's parts, the environment by name", () => {
    const Env = ["PATH=/opt/bin:/bin", "A=1=2", "B=", "=x"];
    expect(boxImage("x", { Entrypoint: "/one", WorkingDir: "/srv", User: "1:2", Env })).toEqual({
      id: "x",
      entrypoint: ["/one"],
      workdir: "/srv",
      user: "1:2",
      env: { PATH: "/opt/bin:/bin", A: "1=2", B: "" },
    });
  });
});

describe("the first process", () => {
  it("is our hold, for the box's lifetime", () => {
    expect(holdArgv(spec({ lifetimeMs: 5000 }), plain)).toEqual([
      "/.breakwater/helper",
      "hold",
      "--lifetime-ms",
      "5000",
    ]);
  });

  it("starts the image's ENTRYPOINT as the image's user, in the spec's folder, unless it is not wanted", () => {
    const child = (cwd: string): readonly string[] => ["--user", "1234:5", "--cwd", cwd, "--", "/entrypoint", "--x"];
    expect(holdArgv(spec(), rich).slice(4)).toEqual(child("/srv"));
    expect(holdArgv(spec({ workdir: "/w" }), rich).slice(4)).toEqual(child("/w"));
    expect(holdArgv(spec({ entrypoint: false }), rich)).toHaveLength(4);
  });
});

describe("a program's environment", () => {
  it("is the image's, over it the policy's, over it the spec's, over it the call's", () => {
    const ofPolicy = { B: "policy", C: "policy", D: "policy" };
    expect(
      programEnvironment(spec({ env: { C: "spec", D: "spec" } }), rich, { ofPolicy, ofCall: { D: "call" } }),
    ).toEqual({ PATH: "/opt/bin:/bin", A: "image", B: "policy", C: "spec", D: "call" });
  });

  it("always has a PATH", () => {
    expect(programEnvironment(spec(), plain)["PATH"]).toContain("/usr/bin");
  });
});
