import { afterEach, describe, expect, it, vi } from "vitest";
import { deadline, withDeadline } from "./deadline.ts";
import { retry } from "./retry.ts";
import { Gate, MAX_TIMER_MS, settlesWithin, sleep } from "./timers.ts";

const ABOUT = { driver: "test", operation: "start", boxId: "box", what: "creating the box" };
const never = (): Promise<never> => new Promise(() => undefined);

afterEach(() => vi.useRealTimers());

describe("a deadline", () => {
  it("is the caller's, else the operation's own", () => {
    using own = deadline(undefined, 100, ABOUT);
    using given = deadline({ timeoutMs: 50 }, 100, ABOUT);
    expect([own.timeoutMs, given.timeoutMs]).toEqual([100, 50]);
  });

  it("ends in a typed error that names what did not end", async () => {
    const result = withDeadline({ timeoutMs: 5 }, 100, ABOUT, never);
    await expect(result).rejects.toMatchObject({
      code: "ERR_TIMEOUT",
      driver: "test",
      operation: "start",
      boxId: "box",
    });
    await expect(result).rejects.toThrow("creating the box did not end within 5 ms");
  });

  it("ends with the caller's signal, whose reason is the cause", async () => {
    const abort = new AbortController();
    const reason = new Error("enough");
    const result = withDeadline({ signal: abort.signal }, 10_000, ABOUT, never);
    abort.abort(reason);
    await expect(result).rejects.toMatchObject({ code: "ERR_ABORTED", cause: reason });
  });

  it("that is over before the start starts nothing", async () => {
    let started = false;
    const work = async (): Promise<void> => {
      started = true;
    };
    const result = withDeadline({ signal: AbortSignal.abort() }, 10_000, ABOUT, work);
    await expect(result).rejects.toMatchObject({ code: "ERR_ABORTED" });
    expect(started).toBe(false);
  });

  it("turns the error of a call that it ended into its own, and leaves others alone", async () => {
    const failure = new Error("socket hang up");
    const ended = withDeadline({ timeoutMs: 5 }, 100, ABOUT, async ({ signal }) => {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      throw failure;
    });
    await expect(ended).rejects.toMatchObject({ code: "ERR_TIMEOUT" });
    await expect(withDeadline(undefined, 100, ABOUT, () => Promise.reject(failure))).rejects.toBe(failure);
  });

  it("does not fire at once for a time that no timer can have", async () => {
    vi.useFakeTimers();
    using clock = deadline({ timeoutMs: 2 ** 31 * 1000 }, 100, ABOUT);
    using endless = deadline({ timeoutMs: Number.POSITIVE_INFINITY }, 100, ABOUT);
    await vi.advanceTimersByTimeAsync(MAX_TIMER_MS - 1);
    expect([clock.signal.aborted, endless.signal.aborted]).toEqual([false, false]);
  });

  it("leaves no timer and no listener behind", () => {
    vi.useFakeTimers();
    const abort = new AbortController();
    const remove = vi.spyOn(abort.signal, "removeEventListener");
    deadline({ signal: abort.signal }, 100, ABOUT)[Symbol.dispose]();
    expect(vi.getTimerCount()).toBe(0);
    expect(remove).toHaveBeenCalledOnce();
  });

  it("knows what is left", async () => {
    vi.useFakeTimers();
    using clock = deadline(undefined, 100, ABOUT);
    await vi.advanceTimersByTimeAsync(40);
    expect(clock.remainingMs()).toBe(60);
    await vi.advanceTimersByTimeAsync(100);
    expect(clock.remainingMs()).toBe(0);
    expect(() => clock.throwIfOver()).toThrow("did not end");
  });

  it.each([Number.NaN, -1, "5"])("of %s is a mistake", (timeoutMs) => {
    expect(() => deadline({ timeoutMs: timeoutMs as number }, 100, ABOUT)).toThrow(TypeError);
  });
});

describe("retry", () => {
  const harmless = Object.assign(new Error("refused"), { harmless: true });
  const isRetryable = (error: unknown): boolean => error === harmless;

  it("repeats what is known to have had no effect", async () => {
    using clock = deadline(undefined, 1000, ABOUT);
    const attempts: number[] = [];
    const call = async (attempt: number): Promise<string> => {
      attempts.push(attempt);
      if (attempt < 3) throw harmless;
      return "done";
    };
    expect(await retry(clock, call, { isRetryable, firstDelayMs: 1 })).toBe("done");
    expect(attempts).toEqual([1, 2, 3]);
  });

  it("throws everything else at once", async () => {
    using clock = deadline(undefined, 1000, ABOUT);
    let attempts = 0;
    const failure = new Error("may have started");
    const call = async (): Promise<never> => {
      attempts += 1;
      throw failure;
    };
    await expect(retry(clock, call, { isRetryable, firstDelayMs: 1 })).rejects.toBe(failure);
    await expect(retry(clock, call, { firstDelayMs: 1 })).rejects.toBe(failure);
    expect(attempts).toBe(2);
  });

  it("gives up after its attempts, and when no time is left for another", async () => {
    let attempts = 0;
    const call = async (): Promise<never> => {
      attempts += 1;
      throw harmless;
    };
    using long = deadline(undefined, 10_000, ABOUT);
    await expect(retry(long, call, { isRetryable, attempts: 2, firstDelayMs: 1 })).rejects.toBe(harmless);
    using short = deadline(undefined, 50, ABOUT);
    await expect(retry(short, call, { isRetryable, firstDelayMs: 10_000 })).rejects.toBe(harmless);
    expect(attempts).toBe(3);
  });
});

describe("waiting", () => {
  it("tells whether a promise settled in time, without rejecting and without a timer left", async () => {
    vi.useFakeTimers();
    expect(await settlesWithin(Promise.reject(new Error("x")), 1000)).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
    const late = settlesWithin(never(), 1000);
    await vi.advanceTimersByTimeAsync(1001);
    expect(await late).toBe(false);
  });

  it("ends a pause with the signal, and leaves no timer", async () => {
    vi.useFakeTimers();
    const abort = new AbortController();
    const pause = sleep(10_000, abort.signal);
    abort.abort(new Error("over"));
    await expect(pause).rejects.toThrow("over");
    expect(vi.getTimerCount()).toBe(0);
  });

  it("ends at a gate that is opened", async () => {
    const gate = new Gate();
    expect(await gate.wait(Promise.resolve(1))).toBe(1);
    const waiting = gate.wait(never());
    gate.open();
    expect(await waiting).toBeUndefined();
    expect(await gate.wait(Promise.reject(new Error("nobody looks")))).toBeUndefined();
  });
});
