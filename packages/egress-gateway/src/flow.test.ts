import { Socket } from "node:net";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Flow } from "./flow.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A connection that the system does not close. */
class Stuck extends Socket {
  override _destroy(): void {}
}

it("a cut is done when everything is closed, and is none when it is not", async () => {
  const flow = new Flow(() => false);
  const socket = new Socket();
  flow.add(socket);
  await flow.cut();
  expect(socket.closed).toBe(true);
  expect(flow.signal.aborted).toBe(true);

  flow.add(new Stuck());
  const cut = Promise.allSettled([flow.cut()]);
  await vi.advanceTimersByTimeAsync(5000);
  expect(await cut).toMatchObject([{ status: "rejected", reason: { message: expect.stringContaining("not closed") } }]);
});
