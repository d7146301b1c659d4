import { expect, it } from "vitest";
import { remembered } from "./remembered.ts";

it("a question is asked once, by whoever asks first", async () => {
  let asked = 0;
  const answer = remembered(async (by: string) => `${by} ${++asked}`);
  expect(await Promise.all([answer("a"), answer("b")])).toEqual(["a 1", "a 1"]);
  expect(await answer("c")).toBe("a 1");
});

it("a question that failed is asked again", async () => {
  let asked = 0;
  const answer = remembered(async () => {
    asked += 1;
    if (asked === 1) throw new Error("busy");
    return asked;
  });
  await expect(answer()).rejects.toThrow("busy");
  expect(await answer()).toBe(2);
});
