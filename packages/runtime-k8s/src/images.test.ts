import { describe, expect, it } from "vitest";
import { imageOf, pinned } from "./images.ts";

const facts = {
  uid: 0,
  gid: 0,
  cwd: "/",
  env: ["PATH=/bin", "HOME=/root", "HOSTNAME=a-pod", "KUBERNETES_SERVICE_HOST=10.0.0.1", "KUBERNETES_PORT=x", "A=b=c"],
  user: { gid: 0, home: "/root" },
};

describe("imageOf", () => {
  it("leaves out what the cluster and the runtime add", () => {
    expect(imageOf("an-id", facts)).toEqual({
      id: "an-id",
      entrypoint: [],
      workdir: null,
      user: null,
      env: { PATH: "/bin", A: "b=c" },
    });
  });

  it("keeps a home that is not the user's own: the image has set it", () => {
    expect(imageOf("", { ...facts, env: ["HOME=/data"] }).env).toEqual({ HOME: "/data" });
  });

  it.each([
    [1234, 1234, 1234, "1234"],
    [1234, 50, 1234, "1234:50"],
    [0, 50, 0, "0:50"],
  ])("names user %d of group %d", (uid, gid, ofFiles, user) => {
    expect(imageOf("", { ...facts, uid, gid, user: { gid: ofFiles, home: "/" } }).user).toBe(user);
  });
});

it("pins by the digest that a registry knows, and by none of the node's own", () => {
  const digest = `sha256:${"0".repeat(64)}`;
  expect(pinned(`docker.io/library/debian@${digest}`)).toBe(`docker.io/library/debian@${digest}`);
  expect(pinned(`docker-pullable://debian@${digest}`)).toBe(`debian@${digest}`);
  expect(pinned(digest)).toBeNull();
});
