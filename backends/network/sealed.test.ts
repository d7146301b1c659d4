import { describe, expect, it } from "vitest";

import { waysOut, type Interface } from "./sealed.ts";

const loopback: Interface = { ifname: "lo", ifindex: 1, link_type: "loopback" };
const bridge: Interface = { ifname: "internet0", ifindex: 2, link_type: "ether", linkinfo: { info_kind: "bridge" } };
const wire = (ifname: string, ifindex: number, otherIndex: number): Interface => ({
  ifname,
  ifindex,
  link_index: otherIndex,
  link_type: "ether",
  linkinfo: { info_kind: "veth" },
});
const box = [loopback, wire("eth0", 8, 9)];
const route = { dst: "default", dev: "internet0" };

describe("waysOut", () => {
  it("finds none among bridges and wires to the backend's own namespaces", () => {
    expect(waysOut([loopback, bridge, wire("veth1", 9, 8)], [box], [route])).toEqual([]);
  });

  it("does not take another network for the backend's", () => {
    expect(waysOut([loopback], [], [])).toEqual(["this is not the backend's network"]);
  });

  it.each([
    ["a wire to somewhere else", [wire("veth1", 9, 7)], [route], /veth1 is in no namespace/],
    ["a wire whose number only looks right", [wire("veth1", 10, 8)], [route], /veth1 is in no namespace/],
    ["a real device", [{ ifname: "eth0", ifindex: 3, link_type: "ether" }], [route], /eth0 is of kind ether/],
    [
      "a tunnel",
      [{ ifname: "t0", ifindex: 3, link_type: "none", linkinfo: { info_kind: "tun" } }],
      [route],
      /t0 is of kind tun/,
    ],
    ["another default route", [], [route, { dst: "default", dev: "bridge9" }], /leads to bridge9/],
  ])("names %s", (_, more, routes, reason) => {
    expect(waysOut([loopback, bridge, ...more], [box], routes)).toEqual([expect.stringMatching(reason)]);
  });
});
