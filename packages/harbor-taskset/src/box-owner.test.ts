import { describe, expect, it } from "vitest";

import { resolveOwner } from "./box-owner.ts";

const PASSWD = ["root:x:0:0:root:/root:/bin/sh", "app:x:1000:1001::/home/app:/bin/sh", "", "broken"];
const GROUP = ["root:x:0:", "build:x:50:app"];

describe("the ids of a box's user", () => {
  it.each([
    ["root", { uid: 0, gid: 0 }],
    ["app", { uid: 1000, gid: 1001 }],
    ["1000", { uid: 1000, gid: 1001 }],
    ["4242", { uid: 4242, gid: 0 }],
    ["app:build", { uid: 1000, gid: 50 }],
    ["app:77", { uid: 1000, gid: 77 }],
    ["4242:77", { uid: 4242, gid: 77 }],
    ["nobody", null],
    ["app:nobody", null],
    ["broken", null],
  ])("%s", (user, owner) => {
    expect(resolveOwner(user, PASSWD, GROUP)).toEqual(owner);
  });
});
