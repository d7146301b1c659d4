import { randomUUID } from "node:crypto";
import { BOX_HELPER_PATH } from "@breakwater/box-helper";
import { type BoxExec, deadline, type Deadline, type ProgramOutcome } from "@breakwater/driver-kit";
import type { OutputStream } from "@breakwater/runtime-api";
import { AnswerError, DRIVER } from "./errors.ts";
import type { Gateway } from "./gateway.ts";
import { type CommandResult, type JobAnswer, jobAnswersSchema } from "./schemas.ts";

/** Folder of requests that are too long for a command line. */
const CALLS_FOLDER = "/.breakwater/calls";
/** How long a call waits in the box for news. Proxies on the way give up after about 100 s. */
const WAIT_MS = 15_000;
const COMMAND_GRACE_MS = 30_000;
const INPUT_WAIT_MS = 2000;
const CLOSE_DELAY_MS = 1000;
/** Jobs that need a call within this time travel together. */
const TOGETHER_MS = 10;
/** The longest command: beyond it Prime's limit is not published, and one was reported. */
const MAX_COMMAND_BYTES = 8 * 1024;
/** The most output that one call fetches, for all its jobs. */
const FETCHED_BYTES = 8 * 1024 * 1024;
const LEAST_FETCHED_BYTES = 16 * 1024;
/** The most input that one call brings. */
const BROUGHT_BYTES = 4 * 1024 * 1024;
const LEAST_BROUGHT_BYTES = 1024;
/** How much input is held here until it is on its way; a write waits beyond it. */
const HELD_BYTES = 8 * 1024 * 1024;
/** How long a call and its repetitions may take. Less than the time after which the box takes us for lost. */
const CALL_TIMEOUT_MS = 90_000;
/** A helper that has ended without closing its output leaves it to somebody: so many further looks. */
const LOOKS_AFTER_EXIT = 3;

/**
 * Programs in a container. Prime gives a container nothing but commands that are waited for, without input; so our helper keeps each program as a
 * job, and every call starts, feeds and fetches for all jobs of the box that need it then. A call is answered as soon as one of its jobs has news. Each
 * can be made again, so a lost answer loses nothing and starts nothing twice.
 */
export class Jobs {
  readonly #gateway: Gateway;
  readonly #boxId: string;
  readonly #waiting = new Set<Job>();
  /** Jobs that are over, for the box to forget: with the next call, or with one of their own. */
  readonly #closed = new Set<Job>();
  #timer: NodeJS.Timeout | undefined;
  #closeTimer: NodeJS.Timeout | undefined;
  #calls = 0;

  constructor(gateway: Gateway, boxId: string) {
    this.#gateway = gateway;
    this.#boxId = boxId;
  }

  /** A program of our helper, by its arguments; it is started with the first bytes of its input. */
  open(helperArgv: readonly string[]): BoxExec {
    return new Job(helperArgv, {
      needsCall: (job) => this.#needsCall(job),
      fetch: async (file, bytes, take) => {
        using clock = this.#clock();
        await this.#gateway.download(clock, file, bytes, take);
      },
    });
  }

  #clock(): Deadline {
    const about = { driver: DRIVER, boxId: this.#boxId, operation: "exec", what: "a call to our helper" };
    return deadline(undefined, CALL_TIMEOUT_MS, about);
  }

  #needsCall(job: Job): void {
    if (job.needsClose) {
      this.#closed.add(job);
      if (this.#closeTimer !== undefined) return;
      this.#closeTimer = setTimeout(() => {
        this.#closeTimer = undefined;
        if (this.#closed.size > 0) this.#round([], "input");
      }, CLOSE_DELAY_MS).unref();
      return;
    }
    this.#waiting.add(job);
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      const jobs = [...this.#waiting];
      this.#waiting.clear();
      // A job whose output is being waited for has its input brought by a call that waits for nothing.
      const fetching = jobs.filter((it) => it.needsOutputCall);
      if (fetching.length > 0) this.#round(fetching, "output");
      const feeding = jobs.filter((it) => it.needsInputCall);
      if (feeding.length > 0) this.#round(feeding, "input");
    }, TOGETHER_MS);
  }

  #round(jobs: readonly Job[], kind: "input" | "output"): void {
    const want = Math.max(LEAST_FETCHED_BYTES, Math.floor(FETCHED_BYTES / Math.max(jobs.length, 1)));
    let room = BROUGHT_BYTES;
    const requests = jobs.map((job) => {
      const request = job.request(kind, kind === "output" ? want : 0, room);
      room -= request.input === undefined ? 0 : (request.input.data.length * 3) / 4;
      return request;
    });
    const closed = [...this.#closed];
    this.#closed.clear();
    // What cannot be closed now, the box itself forgets.
    requests.push(...closed.map((job) => job.closeRequest()));
    this.#call({ waitMs: kind === "output" ? WAIT_MS : INPUT_WAIT_MS, jobs: requests }).then(
      (answers) => {
        for (const job of jobs) {
          const answer = answers.find(({ id }) => id === job.id);
          if (answer === undefined) {
            job.fail(kind, new AnswerError(`our helper left the job ${job.id} out of its answer`));
          } else {
            job.take(kind, answer).catch((error: unknown) => job.fail(kind, error));
          }
        }
      },
      (error: unknown) => {
        for (const job of jobs) job.fail(kind, error);
      },
    );
  }

  async #call(request: {
    readonly waitMs: number;
    readonly jobs: readonly JobRequest[];
  }): Promise<readonly JobAnswer[]> {
    using clock = this.#clock();
    const text = JSON.stringify(request);
    const helper = `exec ${BOX_HELPER_PATH} jobs`;
    let command = `${helper} '${text}'`;
    let path: string | undefined;
    if (Buffer.byteLength(command) > MAX_COMMAND_BYTES) {
      this.#calls += 1;
      path = `${CALLS_FOLDER}/${this.#calls}-${randomUUID().slice(0, 8)}`;
      command = `${helper} --file ${path}`;
    }
    const timeoutMs = request.waitMs + COMMAND_GRACE_MS;
    let attempts = 0;
    const onAttempt = async (): Promise<void> => {
      attempts += 1;
      // Our helper has removed it when it was there.
      if (path !== undefined) await this.#gateway.upload(clock, path, Buffer.from(text));
    };
    const result = await this.#gateway.run(clock, { command, timeoutMs, user: "0:0", onAttempt });
    return parseAnswers(result, attempts === 1);
  }
}

/** What has to be there before the first job. */
export const JOB_FOLDERS: readonly string[] = [CALLS_FOLDER];

function parseAnswers({ stdout, stderr, exitCode }: CommandResult, isFirstAttempt: boolean): readonly JobAnswer[] {
  let value: unknown;
  try {
    value = JSON.parse(stdout);
  } catch {
    value = undefined;
  }
  const parsed = jobAnswersSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  const said = `the command that runs our helper ended with ${exitCode}: ${(stderr || stdout).trim().slice(0, 300)}`;
  // A shell, or who starts it, ends so when there is nothing to start. Our helper never does.
  const nothingRan = isFirstAttempt && (exitCode === 126 || exitCode === 127);
  throw nothingRan ? new NothingRanError(said) : new AnswerError(said);
}

/** The box has no shell any more, or no helper: a call did nothing. */
class NothingRanError extends Error {
  override readonly name = "NothingRanError";
}

interface JobRequest {
  readonly id: string;
  readonly start?: readonly string[] | undefined;
  readonly input?: { readonly at: number; readonly data: string } | undefined;
  readonly had: readonly [number, number];
  readonly want: number;
  readonly close?: true | undefined;
}

interface Output {
  readonly stream: OutputStream;
  readonly chunk: Uint8Array;
}

const STREAMS = ["stdout", "stderr"] as const;

/** What a job needs of the jobs of its box. */
interface JobContext {
  readonly needsCall: (job: Job) => void;
  /** A file of the box, as it comes. */
  readonly fetch: (file: string, bytes: number, take: (chunk: Buffer) => void) => Promise<void>;
}

/** One program that our helper keeps, as the transport of an exec session. */
class Job implements BoxExec {
  readonly id: string = randomUUID();
  readonly output: AsyncIterable<Output>;
  readonly #argv: readonly string[];
  readonly #jobs: JobContext;

  #wasAsked = false;
  #isStarted = false;
  #isClosed = false;
  #isCloseSent = false;
  #isFetching = false;
  #isBringing = false;
  /** Somebody waits for output. */
  #isReading = false;

  #input: Buffer[] = [];
  #inputBytes = 0;
  /** What has been taken of the input, from its beginning. */
  #taken = 0;
  /** What is in it or on its way. */
  #sentTo = 0;
  #roomWanted: (() => void)[] = [];

  readonly #had: [number, number] = [0, 0];
  #arrived: Output[] = [];
  #isEnded = false;
  #failure: Error | undefined;
  #exit: number | null = null;
  #looks = 0;
  #wake: (() => void) | undefined;

  constructor(argv: readonly string[], jobs: JobContext) {
    this.#argv = argv;
    this.#jobs = jobs;
    this.output = this.#read();
    // A program that takes no input is started at once.
    if (argv[0] !== "exec") this.#jobs.needsCall(this);
  }

  /** The box has to be told that the job is over. */
  get needsClose(): boolean {
    return this.#isClosed && this.#isStarted && !this.#isCloseSent;
  }

  get needsInputCall(): boolean {
    return !this.#isClosed && !this.#isBringing && this.#wasAsked && this.#inputEnd > this.#sentTo;
  }

  get needsOutputCall(): boolean {
    const isWanted = this.#isReading || !this.#wasAsked;
    return !this.#isClosed && !this.#isEnded && !this.#isFetching && isWanted && this.#failure === undefined;
  }

  get #inputEnd(): number {
    return this.#taken + this.#inputBytes;
  }

  closeRequest(): JobRequest {
    this.#isCloseSent = true;
    return { id: this.id, had: [...this.#had], want: 0, close: true };
  }

  request(kind: "input" | "output", want: number, room: number): JobRequest {
    const brings = kind === "input" || !this.#wasAsked;
    this.#wasAsked = true;
    if (kind === "output") this.#isFetching = true;
    else this.#isBringing = true;
    const request = {
      id: this.id,
      start: this.#isStarted ? undefined : this.#argv,
      had: [...this.#had] as const,
      want,
    };
    if (!brings || this.#inputEnd === this.#sentTo) return request;
    const at = this.#sentTo;
    const data = Buffer.concat(this.#input).subarray(
      at - this.#taken,
      at - this.#taken + Math.max(room, LEAST_BROUGHT_BYTES),
    );
    this.#sentTo += data.length;
    return { ...request, input: { at, data: data.toString("base64") } };
  }

  async take(kind: "input" | "output", answer: JobAnswer): Promise<void> {
    if (answer.gone) {
      // Somebody in the box has ended what kept it.
      this.#isEnded = true;
      this.#noteTaken(this.#inputEnd);
      this.#wake?.();
      return;
    }
    this.#isStarted = true;
    this.#exit = answer.exit;
    if (kind === "output") await this.#takeOutput(answer);
    this.#isBackFrom(kind);
    this.#noteTaken(answer.taken);
    if (!this.#isBringing) this.#sentTo = this.#taken;
    this.#wake?.();
    this.#jobs.needsCall(this);
  }

  async #takeOutput({ out, ended, exit }: JobAnswer): Promise<void> {
    let news = 0;
    for (const [index, { at, data, file, bytes }] of out.entries()) {
      const which = index as 0 | 1;
      // What came is what was asked for: from where we are.
      if (bytes === 0) continue;
      if (at !== this.#had[which])
        throw new AnswerError(`our helper gave output from ${at} where ${this.#had[which]} was asked for`);
      news += bytes;
      const take = (chunk: Buffer): void => {
        this.#had[which] += chunk.length;
        this.#arrived.push({ stream: STREAMS[which], chunk });
        this.#wake?.();
      };
      if (file === null) take(data);
      else await this.#jobs.fetch(file, bytes, take);
    }
    if (news === 0 && exit !== null) this.#looks += 1;
    this.#isEnded = (exit !== null && ended.every(Boolean)) || this.#looks >= LOOKS_AFTER_EXIT;
  }

  fail(kind: "input" | "output", error: unknown): void {
    this.#isBackFrom(kind);
    this.#failure ??= error instanceof Error ? error : new Error(String(error));
    this.#noteTaken(this.#inputEnd);
    this.#wake?.();
  }

  #isBackFrom(kind: "input" | "output"): void {
    if (kind === "output") this.#isFetching = false;
    else this.#isBringing = false;
  }

  async write(bytes: Uint8Array): Promise<void> {
    if (this.#failure !== undefined || this.#isClosed || this.#isEnded)
      throw new Error("the job takes no input any more");
    this.#input.push(Buffer.from(bytes));
    this.#inputBytes += bytes.length;
    this.#jobs.needsCall(this);
    while (this.#inputBytes > HELD_BYTES) {
      await new Promise<void>((resolve) => this.#roomWanted.push(resolve));
      if (this.#failure !== undefined || this.#isClosed) throw new Error("the job takes no input any more");
    }
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#noteTaken(this.#inputEnd);
    this.#wake?.();
    this.#jobs.needsCall(this);
  }

  async outcome(_clock: Deadline): Promise<ProgramOutcome | null> {
    if (this.#failure instanceof NothingRanError && !this.#isStarted) {
      return { exitCode: null, startFailure: this.#failure.message };
    }
    return this.#exit === null ? null : { exitCode: this.#exit };
  }

  async *#read(): AsyncGenerator<Output, void, undefined> {
    for (;;) {
      const next = this.#arrived.shift();
      if (next !== undefined) {
        yield next;
        continue;
      }
      if (this.#isEnded || this.#isClosed) return;
      if (this.#failure !== undefined) throw this.#failure;
      this.#isReading = true;
      if (this.#wasAsked) this.#jobs.needsCall(this);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#isReading = false;
    }
  }

  #noteTaken(taken: number): void {
    let gone = taken - this.#taken;
    if (gone <= 0) return;
    this.#taken = taken;
    this.#sentTo = Math.max(this.#sentTo, taken);
    this.#inputBytes -= gone;
    while (gone > 0) {
      const [first] = this.#input;
      if (first === undefined) break;
      if (first.length > gone) {
        this.#input[0] = first.subarray(gone);
        break;
      }
      gone -= first.length;
      this.#input.shift();
    }
    const waiting = this.#roomWanted;
    this.#roomWanted = [];
    for (const resolve of waiting) resolve();
  }
}
