import ipaddr from "ipaddr.js";
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { compilePolicy } from "./policy.ts";

const allowing = (...hosts: readonly string[]) => compilePolicy({ mode: "allowlist", hosts });
const numbers = (length: number, max: number): fc.Arbitrary<number[]> =>
  fc.array(fc.nat(max), { minLength: length, maxLength: length });
const v4 = fc.tuple(
  numbers(4, 255).map((parts) => parts.join(".")),
  fc.nat(32),
);
const v6 = fc.tuple(
  numbers(8, 0xffff).map((parts) => ipaddr.parse(parts.map((part) => part.toString(16)).join(":")).toString()),
  fc.nat(128),
);

it("a range has what begins with its prefix, whatever its length", () => {
  fc.assert(
    fc.property(fc.oneof(v4, v6), fc.nat(127), ([address, bits], flipped) => {
      const parsed = ipaddr.parse(address);
      const bytes = parsed.toByteArray();
      const at = flipped % (8 * bytes.length);
      bytes[at >> 3] = (bytes[at >> 3] ?? 0) ^ (0x80 >> (at & 7));
      const near = ipaddr.fromByteArray(bytes).toString();
      const network = (parsed.kind() === "ipv4" ? ipaddr.IPv4 : ipaddr.IPv6).networkAddressFromCIDR(
        `${address}/${bits}`,
      );
      const policy = allowing(`${network.toString()}/${bits}`);
      expect(policy.allows({ kind: "address", text: address })).not.toBeNull();
      expect(policy.allows({ kind: "address", text: near }) !== null).toBe(at >= bits);
    }),
  );
});

it("says the narrowest range, and keeps the families apart", () => {
  const policy = allowing("93.184.0.0/16", "93.184.215.0/24", "::/0");
  const entryOf = (text: string): string | null => policy.allows({ kind: "address", text });
  expect([entryOf("93.184.215.14"), entryOf("93.184.1.1"), entryOf("93.185.0.0")]).toEqual([
    "93.184.215.0/24",
    "93.184.0.0/16",
    null,
  ]);
  expect(entryOf("2606:2800::1")).toBe("::/0");
  expect(policy.allows({ kind: "name", text: "93.184.215.14.example" })).toBeNull();
});

it("thousands of ranges are read once, not for each decision", () => {
  const ranges = Array.from({ length: 5000 }, (_, at) => `11.${at >> 8}.${at & 255}.0/24`);
  const policy = allowing(...ranges);
  const startedAt = performance.now();
  for (let at = 0; at < 300; at++) expect(policy.allows({ kind: "address", text: "12.0.0.1" })).toBeNull();
  expect(performance.now() - startedAt).toBeLessThan(1000);
  expect(policy.allows({ kind: "address", text: "11.19.135.7" })).toBe("11.19.135.0/24");
});
