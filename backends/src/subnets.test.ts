import { describe, expect, it } from "vitest";

import { overlaps, pickSubnet, usedRanges } from "./subnets.ts";

describe("pickSubnet", () => {
  it("takes the first range when nothing is in its way", () => {
    expect(pickSubnet(24, ["192.168.1.0/24"])).toEqual({ subnet: "10.213.0.0/24", gateway: "10.213.0.1/24" });
  });

  it.each(["10.213.0.7", "10.213.0.0/16", "10.208.0.0/12"])("goes round %s", (used) => {
    expect(overlaps(pickSubnet(24, [used]).subnet, used)).toBe(false);
  });

  it("gives up when a route covers all of them", () => {
    expect(() => pickSubnet(16, ["10.0.0.0/8"])).toThrow(/no free private address range/);
  });
});

describe("usedRanges", () => {
  it("reads routes and addresses, not the default route", () => {
    const text = [
      "default via 172.16.0.1 dev eth0",
      "10.88.0.0/16 dev cni0 proto kernel scope link src 10.88.0.1",
      "2: eth0    inet 172.16.0.2/30 brd 172.16.0.3 scope global eth0",
      "0.0.0.0/0 dev tun0",
    ].join("\n");
    expect(usedRanges(text)).toEqual(["172.16.0.1", "10.88.0.0/16", "10.88.0.1", "172.16.0.2/30", "172.16.0.3"]);
  });
});

describe("overlaps", () => {
  it.each([
    ["10.1.0.0/16", "10.1.255.255", true],
    ["10.1.0.0/16", "10.2.0.0/16", false],
    ["10.1.2.0/24", "10.0.0.0/8", true],
    ["192.168.0.0/24", "192.168.1.0/24", false],
    ["200.0.0.0/8", "200.255.0.1", true],
  ])("%s and %s: %s", (first, second, expected) => {
    expect(overlaps(first, second)).toBe(expected);
    expect(overlaps(second, first)).toBe(expected);
  });
});
