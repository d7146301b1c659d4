import { describe, expect, it } from "vitest";

import { contentKey, debian12, debian13 } from "./base-images.ts";
import { parseMirrors } from "./debian.ts";

describe("parseMirrors", () => {
  it("finds this machine's Debian mirrors", () => {
    const listing = [
      "Other|stable|http://other.test/debian/",
      "Debian|bookworm|http://mirror.test/debian/",
      "Debian|bookworm-updates|http://mirror.test/debian/",
      "Debian|bookworm-security|http://mirror.test/debian-security/",
    ].join("\n");
    expect(parseMirrors(listing)).toEqual({
      main: "http://mirror.test/debian/",
      security: "http://mirror.test/debian-security/",
    });
  });

  it("leaves the choice to debootstrap where the machine is no Debian", () => {
    expect(parseMirrors("Ubuntu|noble|http://mirror.test/ubuntu/\n")).toEqual({ main: "", security: "" });
  });
});

describe("contentKey", () => {
  it("changes with what goes into the image", () => {
    const keys = [debian12, debian13, { ...debian12, packages: [...debian12.packages, "curl"] }].map(contentKey);
    expect(new Set(keys).size).toBe(3);
    expect(contentKey(debian12)).toBe(contentKey({ ...debian12 }));
  });
});
