import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { defaultSockets, engineAddress, findEngine, registryConfigPath } from "./options.ts";

async function connection(host: string, environment: Record<string, string> = {}): Promise<Record<string, unknown>> {
  return { ...(await engineAddress(host, {}, environment)).connection };
}

describe("the address of an engine", () => {
  it("may be a socket", async () => {
    expect(await connection("unix:///run/x.sock")).toMatchObject({ socketPath: "/run/x.sock", host: undefined });
    expect(await connection("/run/x.sock")).toMatchObject({ socketPath: "/run/x.sock" });
  });

  it("may be a host, with the port that is usual", async () => {
    expect(await connection("tcp://engine:1234")).toMatchObject({ host: "engine", port: 1234, protocol: "http" });
    expect(await connection("tcp://engine")).toMatchObject({ port: 2375, protocol: "http" });
    expect(await connection("engine:2375")).toMatchObject({ host: "engine", port: 2375 });
    expect(await connection("https://engine")).toMatchObject({ port: 2376, protocol: "https" });
    expect(await connection("ssh://me@engine")).toMatchObject({ protocol: "ssh", username: "me", port: 22 });
  });

  it("is encrypted where DOCKER_TLS_VERIFY says so", async () => {
    expect(await connection("tcp://engine", { DOCKER_TLS_VERIFY: "1" })).toMatchObject({ protocol: "https" });
    expect(await connection("tcp://engine", { DOCKER_TLS_VERIFY: "0" })).toMatchObject({ protocol: "http" });
  });

  it("brings its certificates", async () => {
    const folder = await mkdtemp(join(tmpdir(), "certificates-"));
    try {
      for (const name of ["ca", "cert", "key"]) await writeFile(join(folder, `${name}.pem`), name);
      const found = await connection("tcp://engine:2376", { DOCKER_CERT_PATH: folder });
      expect(["ca", "cert", "key"].map((name) => String(found[name]))).toEqual(["ca", "cert", "key"]);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it.each(["unix://relative", "ftp://engine", "tcp://", "http://[", ""])("is a mistake: %s", async (host) => {
    await expect(engineAddress(host)).rejects.toThrow(TypeError);
  });
});

describe("finding an engine", () => {
  it("takes the option before DOCKER_HOST", async () => {
    const environment = { DOCKER_HOST: "unix:///from/environment" };
    expect((await findEngine({ host: "unix:///from/option" }, environment))?.label).toBe("unix:///from/option");
    expect((await findEngine({}, environment))?.label).toBe("unix:///from/environment");
  });

  it("tries Docker's sockets before Podman's", () => {
    expect(defaultSockets({ XDG_RUNTIME_DIR: "/run/user/1" }, "/home/me")).toEqual([
      "/var/run/docker.sock",
      "/home/me/.docker/run/docker.sock",
      "/run/user/1/docker.sock",
      "/run/user/1/podman/podman.sock",
      "/run/podman/podman.sock",
    ]);
  });
});

it("reads logins where Docker's own client does", () => {
  expect(registryConfigPath({}, { DOCKER_CONFIG: "/d" })).toBe("/d/config.json");
  expect(registryConfigPath({ registryConfigPath: "/own.json" }, { DOCKER_CONFIG: "/d" })).toBe("/own.json");
});
