import { describe, expect, test } from "vitest";

import { effectiveArtifacts, parseArtifactEntries, resolveArtifacts } from "./artifacts-declaration.ts";
import { DEFAULT_ARTIFACT_LIMITS } from "./options.ts";
import type { ArtifactPlan } from "./plan.ts";

function plan(task: readonly unknown[], trial: readonly unknown[] = []): ReturnType<typeof effectiveArtifacts> {
  const own = parseArtifactEntries(task, "artifacts");
  const added = parseArtifactEntries(trial, "--artifact");
  expect([...own.problems, ...added.problems]).toEqual([]);
  return effectiveArtifacts(own.entries, added.entries, [], DEFAULT_ARTIFACT_LIMITS);
}

const places = (artifacts: readonly ArtifactPlan[]): string[][] =>
  artifacts.map(({ source, destination }) => [source, destination]);

describe("sources", () => {
  test.each([
    "/",
    "//",
    "/.",
    "/tests",
    "/tests/",
    "/./tests/secret",
    "/tests/deep/er",
    "/logs",
    "/logs/verifier",
    "/logs/verifier/reward.json",
    "/.breakwater/helper",
    "/etc",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/libx32",
    "/boot",
    "/proc",
    "/proc/self/environ",
    "/sys/kernel",
    "/dev",
    "/dev/shm/x",
    "/run",
    "/run/docker.sock",
    "/app/../tests",
    "../../etc/x",
    "a/../b",
    "..",
    "",
    "  ",
    "C:\\x",
    "C:/x",
    "a\\b",
    "/a\0b",
    "/a\nb",
    7,
    null,
    ["/a"],
    {},
    { source: 1 },
  ])("%j is refused", (source) => {
    const { entries, problems } = parseArtifactEntries([source], "artifacts");
    expect(entries).toEqual([]);
    expect(problems).toHaveLength(1);
    expect(problems[0]?.key).toMatch(/^artifacts\[0\]/);
  });

  test.each([
    ["/logs/artifacts", "/logs/artifacts"],
    ["/logs/artifacts/model.patch", "/logs/artifacts/model.patch"],
    ["/logs/agent", "/logs/agent"],
    ["/logs/verifier2", "/logs/verifier2"],
    ["/tests2", "/tests2"],
    ["/app/tests", "/app/tests"],
    ["/etc/nginx", "/etc/nginx"],
    ["/usr/local/share/x", "/usr/local/share/x"],
    ["/srv/lib", "/srv/lib"],
    ["/tmp", "/tmp"],
    ["/app//out/./x/", "/app/out/x"],
    ["relative/x", "relative/x"],
    ["./out/", "out"],
    [".", "."],
    ["..x/y", "..x/y"],
    ["/a b/ü", "/a b/ü"],
  ])("%j loads as %j", (source, normalised) => {
    const { entries, problems } = parseArtifactEntries([source], "artifacts");
    expect(problems).toEqual([]);
    expect(entries[0]?.source).toBe(normalised);
  });

  test("inside the system's folders is a doubt", () => {
    expect(parseArtifactEntries(["/usr/local/bin", "/app"], "artifacts").warnings.map(({ key }) => key)).toEqual([
      "artifacts[0]",
    ]);
  });
});

describe("tables", () => {
  test.each([
    ["/abs"],
    ["../../x"],
    ["a/../b"],
    ["."],
    ["./"],
    ["a\\b"],
    ["C:/x"],
    ["manifest.json"],
    ["manifest.json/"],
    ["./manifest.json"],
    ["manifest.json/x"],
    [7],
    ["a\0"],
  ])("destination %j is refused", (destination) => {
    const { problems } = parseArtifactEntries([{ source: "/a", destination }], "artifacts");
    expect(problems.map(({ key }) => key)).toEqual(["artifacts[0].destination"]);
  });

  test.each([
    ["out/result.txt", "out/result.txt"],
    ["deep//nested/./dir/", "deep/nested/dir"],
    ["services/x", "services/x"],
    ["versions/v1..2/x", "versions/v1..2/x"],
    ["", null],
  ])("destination %j loads as %j", (destination, normalised) => {
    expect(parseArtifactEntries([{ source: "/a", destination }], "artifacts").entries[0]?.destination).toBe(normalised);
  });

  test("a service is kept by its name, main is none; its source is absolute", () => {
    const { entries, problems } = parseArtifactEntries(
      [
        { source: "/a", service: "api" },
        { source: "/b", service: "main" },
        { source: "/c", service: 7 },
        { source: "d", service: "api" },
      ],
      "artifacts",
    );
    expect(problems.map(({ key }) => key)).toEqual(["artifacts[2].service", "artifacts[3].source"]);
    expect(entries.map(({ source, service }) => [source, service])).toEqual([
      ["/a", "api"],
      ["/b", undefined],
    ]);
  });

  test("of two services with one path the first is collected (A25); what lies inside another's is collected over it", () => {
    const { entries } = parseArtifactEntries(
      ["/x", { source: "/x", service: "api" }, { source: "/x/log", service: "api" }],
      "artifacts",
    );
    const { artifacts, warnings } = effectiveArtifacts(entries, [], [], DEFAULT_ARTIFACT_LIMITS);
    expect(artifacts.map(({ source, service }) => [source, service])).toEqual([
      ["/logs/artifacts", undefined],
      ["/x", undefined],
      ["/x/log", "api"],
    ]);
    expect(warnings.map(({ key }) => key)).toContain("artifacts[1]");
  });

  test("exclude is a list of texts, kept as it is", () => {
    expect(
      parseArtifactEntries([{ source: "/a", exclude: ["$(rm -rf /)", "*.pyc"] }], "artifacts").entries[0]?.exclude,
    ).toEqual(["$(rm -rf /)", "*.pyc"]);
    for (const exclude of ["*.pyc", [1], [""]]) {
      expect(parseArtifactEntries([{ source: "/a", exclude }], "artifacts").problems.map(({ key }) => key)).toEqual([
        "artifacts[0].exclude",
      ]);
    }
  });

  test("all mistakes of all entries at once; unknown keys are doubts", () => {
    const { problems, warnings } = parseArtifactEntries(
      [{ source: "", destination: "/x", exclude: 1, sauce: 1 }, "/tests"],
      "artifacts",
    );
    expect(problems).toHaveLength(4);
    expect(warnings.map(({ key }) => key)).toEqual(["artifacts[0].sauce"]);
  });

  test("a thousand entries are enough", () => {
    expect(
      parseArtifactEntries(
        Array.from({ length: 1001 }, (_, index) => `/a${index}`),
        "artifacts",
      ).problems,
    ).toHaveLength(1);
  });
});

describe("the effective list", () => {
  test("the convention folder comes first, then the task's, then the caller's", () => {
    const { artifacts, warnings } = plan(["/app/out"], [{ source: "/app/more", destination: "more" }]);
    expect(artifacts.map(({ source, declaredBy }) => [source, declaredBy])).toEqual([
      ["/logs/artifacts", "convention"],
      ["/app/out", "task"],
      ["/app/more", "trial"],
    ]);
    expect(places(artifacts)).toEqual([
      ["/logs/artifacts", "artifacts/logs/artifacts"],
      ["/app/out", "artifacts/app/out"],
      ["/app/more", "artifacts/more"],
    ]);
    expect(warnings).toEqual([]);
  });

  test("an entry for the convention folder takes its place", () => {
    const { artifacts } = plan(["/app", { source: "/logs/artifacts/", exclude: ["*.log"] }]);
    expect(artifacts.map(({ source, declaredBy }) => [source, declaredBy])).toEqual([
      ["/app", "task"],
      ["/logs/artifacts", "task"],
    ]);
  });

  test("an entry inside the convention folder loads without a doubt", () => {
    const { artifacts, warnings } = plan(["/logs/artifacts/model.patch"]);
    expect(artifacts[1]).toMatchObject({ source: "/logs/artifacts/model.patch", overlaps: ["/logs/artifacts"] });
    expect(warnings).toEqual([]);
  });

  test("the same thing in other words is collected once, with a warning that names both", () => {
    const { artifacts, warnings } = plan(["/app/out", "/app/out/", "/app/./out"]);
    expect(artifacts).toHaveLength(2);
    expect(warnings.map(({ key }) => key)).toEqual(["artifacts[1]", "artifacts[2]"]);
    expect(warnings[0]?.message).toContain("artifacts[0]");
  });

  test("the same source with another exclude, and nested sources, stay and are recorded", () => {
    const { artifacts, warnings } = plan(["/app/out", { source: "/app/out", exclude: ["a"] }, "/app", "/app/out/deep"]);
    expect(artifacts.slice(1).map(({ source, overlaps }) => [source, overlaps])).toEqual([
      ["/app/out", []],
      ["/app/out", ["/app/out"]],
      ["/app", ["/app/out", "/app/out"]],
      ["/app/out/deep", ["/app/out", "/app/out", "/app"]],
    ]);
    // The last one is covered by /app/out and /app; with the entry that excludes something it is not.
    expect(warnings.map(({ key }) => key)).toEqual(["artifacts[1]", "artifacts[2]", "artifacts[2]", "artifacts[3]"]);
  });

  test("two things never share a place on the host", () => {
    const { artifacts, warnings } = plan([
      { source: "/a", destination: "x" },
      { source: "/b", destination: "x" },
      { source: "/c", destination: "x/y" },
    ]);
    expect(places(artifacts).slice(1)).toEqual([
      ["/a", "artifacts/x"],
      ["/b", "artifacts/entry-2/b"],
      ["/c", "artifacts/entry-3/c"],
    ]);
    expect(warnings.map(({ key }) => key)).toEqual(["artifacts[1]", "artifacts[2]"]);
  });

  test("a source called manifest.json does not take the manifest's place", () => {
    expect(places(plan(["/manifest.json"]).artifacts)[1]).toEqual(["/manifest.json", "artifacts/root/manifest.json"]);
  });
});

describe("relative sources", () => {
  test("are below the working directory", () => {
    const { artifacts, problems } = resolveArtifacts(plan(["out/x", ".", "/abs"]).artifacts, "/work/dir/");
    expect(problems).toEqual([]);
    expect(places(artifacts).slice(1)).toEqual([
      ["/work/dir/out/x", "artifacts/out/x"],
      ["/work/dir", "artifacts/workdir"],
      ["/abs", "artifacts/abs"],
    ]);
    expect(artifacts[2]?.overlaps).toEqual(["/work/dir/out/x"]);
  });

  test("come under the rules about roots there", () => {
    expect(resolveArtifacts(plan(["tests/x", "."]).artifacts, "/").problems).toHaveLength(2);
    expect(resolveArtifacts(plan(["x"]).artifacts, "/proc").problems).toHaveLength(1);
  });
});
