import {
  RuntimeError,
  type PreparedImage,
  type PrepareImageOptions,
  type RuntimeDriver,
} from "@breakwater/runtime-api";
import { setImmediate as turn } from "node:timers/promises";
import { expect, it, vi } from "vitest";

import { prepareImageOnce } from "./image-preparation.ts";

const SOURCE = { reference: "debian" };
const IMAGE = { id: "sha256:1", reference: "debian" } as unknown as PreparedImage;

interface Call {
  readonly options: PrepareImageOptions;
  readonly resolve: (image: PreparedImage) => void;
  readonly reject: (error: Error) => void;
}

/** A driver whose pulls end when the test says so. */
function slowDriver(): { readonly driver: RuntimeDriver; readonly calls: Call[] } {
  const calls: Call[] = [];
  const prepareImage = (_source: unknown, options: PrepareImageOptions): Promise<PreparedImage> =>
    new Promise((resolve, reject) => calls.push({ options, resolve, reject }));
  return { driver: { prepareImage } as unknown as RuntimeDriver, calls };
}

it("prepares once for all who need the image at the same time, and tells each of them how it goes", async () => {
  const { driver, calls } = slowDriver();
  const lines: string[] = [];
  const waiting = ["a", "b"].map((who) =>
    prepareImageOnce(driver, SOURCE, { onProgress: (line) => lines.push(`${who} ${line}`) }),
  );
  await turn();
  expect(calls).toHaveLength(1);
  calls[0]?.options.onProgress?.("pulling");
  calls[0]?.resolve(IMAGE);
  expect(await Promise.all(waiting)).toEqual([IMAGE, IMAGE]);
  expect(lines).toEqual(["a pulling", "b pulling"]);
  // Whoever comes later asks again: the image may have gone.
  void prepareImageOnce(driver, SOURCE, {});
  await turn();
  expect(calls).toHaveLength(2);
});

it("goes on if one gives up, and is given up when nobody waits any more", async () => {
  const { driver, calls } = slowDriver();
  const [one, other] = [new AbortController(), new AbortController()];
  const waiting = [one, other].map(({ signal }) => prepareImageOnce(driver, SOURCE, { signal }));
  const ends = Promise.allSettled(waiting);
  one.abort(new Error("given up"));
  await turn();
  expect(calls[0]?.options.signal?.aborted).toBe(false);
  other.abort(new Error("given up"));
  await ends;
  expect(calls[0]?.options.signal?.aborted).toBe(true);
  for (const end of await ends) expect(end).toMatchObject({ status: "rejected", reason: { message: "given up" } });
});

it("asks again while there is no room, and not for any other reason", async () => {
  const error = (code: "ERR_BACKEND_QUOTA" | "ERR_IMAGE_PULL"): RuntimeError =>
    new RuntimeError({ code, driver: "slow", operation: "prepareImage", message: "no", retryable: true });
  const { driver, calls } = slowDriver();
  const lines: string[] = [];
  const image = prepareImageOnce(driver, SOURCE, { timeoutMs: 60_000, onProgress: (line) => lines.push(line) });
  const end = image.catch((reason: unknown) => reason);
  await turn();
  calls[0]?.reject(error("ERR_BACKEND_QUOTA"));
  await vi.waitFor(() => expect(calls).toHaveLength(2), { timeout: 15_000 });
  expect(lines).toEqual(["no room yet: slow: no"]);
  calls[1]?.reject(error("ERR_IMAGE_PULL"));
  expect(await end).toMatchObject({ code: "ERR_IMAGE_PULL" });
});
