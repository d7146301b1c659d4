import { describe, expect, it } from "vitest";

import { printable } from "./phrases.ts";

describe("printable", () => {
  it("leaves no terminal escape in what a box wrote", () => {
    expect(printable("a\u001b[2Jb\r\nc\u009b1md")).toBe("a [2Jb c 1md");
    expect(printable("ünï 漢")).toBe("ünï 漢");
  });
});
