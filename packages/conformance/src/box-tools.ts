import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type ExecOptions,
  type ExecResult,
  isRuntimeError,
  type Runtime,
  RuntimeError,
  type RuntimeErrorCode,
} from "@breakwater/runtime-api";

/**
 * How long a case waits for what has to come, in milliseconds. Nothing is measured by it: a machine that is busy with other work takes its
 * time, and what never comes is red all the same.
 */
export const PATIENCE_MS = 60_000;

/** Text of bytes that must be UTF-8. */
export function text(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}

/** Runs `sh -c script` and gives its output; anything but exit 0 fails the case. */
export async function shell(box: Runtime, script: string, options: ExecOptions = {}): Promise<string> {
  return succeed(await box.exec(["sh", "-c", script], { timeoutMs: PATIENCE_MS, ...options }), script);
}

/** Runs a perl program with arguments and gives its output; anything but exit 0 fails the case. */
export async function perl(
  box: Runtime,
  program: string,
  args: readonly string[] = [],
  options: ExecOptions = {},
): Promise<string> {
  return succeed(await box.exec(["perl", "-e", program, ...args], { timeoutMs: PATIENCE_MS, ...options }), program);
}

function succeed(result: ExecResult, script: string): string {
  const said = `stdout ${JSON.stringify(text(result.stdout))}, stderr ${JSON.stringify(text(result.stderr))}`;
  assert.equal(result.timedOut, false, `timed out: ${script}: ${said}`);
  assert.equal(result.exitCode, 0, `exit ${result.exitCode}: ${script}: ${said}`);
  return text(result.stdout);
}

/** The box still does what it is told. Part of every case that could have broken it. */
export async function assertAnswers(box: Runtime): Promise<void> {
  const answer = await box.exec(["sh", "-c", "echo still here"], { timeoutMs: PATIENCE_MS }).then(
    ({ exitCode, stdout }) => `${exitCode} ${text(stdout)}`,
    (error: unknown) => describe(error),
  );
  assert.equal(answer, "0 still here\n", `the box does not answer any more: ${answer}`);
}

/** The operation must reject with one of the codes. Gives the error. May be awaited later. */
export function rejection(operation: Promise<unknown>, ...codes: readonly RuntimeErrorCode[]): Promise<RuntimeError> {
  const judged = operation.then(
    () => {
      throw new assert.AssertionError({
        message: `expected a RuntimeError with code ${codes.join(" or ")}, but it succeeded`,
      });
    },
    (error: unknown) => expectedError(error, ...codes),
  );
  judged.catch(() => undefined);
  return judged;
}

/** What was caught must be an error with one of the codes. */
export function expectedError(error: unknown, ...codes: readonly RuntimeErrorCode[]): RuntimeError {
  if (isRuntimeError(error, ...codes)) return error;
  throw new assert.AssertionError({
    message: `expected a RuntimeError with code ${codes.join(" or ")}, got ${describe(error)}`,
    actual: error,
    expected: codes,
  });
}

/** A mistake of the programmer: a bare `TypeError`, thrown or rejected. */
export async function mistake(operation: () => unknown): Promise<void> {
  try {
    await operation();
  } catch (error) {
    if (error instanceof TypeError) return;
    throw new assert.AssertionError({ message: `expected a TypeError, got ${describe(error)}`, actual: error });
  }
  throw new assert.AssertionError({ message: "expected a TypeError, but it succeeded" });
}

function describe(error: unknown): string {
  return isRuntimeError(error) ? `${error.code}: ${error.message}` : String(error);
}

/** Waits for a condition and fails the case when it does not come true. */
export async function until(
  what: string,
  check: () => boolean | Promise<boolean>,
  timeoutMs: number = PATIENCE_MS,
): Promise<void> {
  const end = performance.now() + timeoutMs;
  while (!(await check())) {
    if (performance.now() > end)
      throw new assert.AssertionError({ message: `not seen within ${timeoutMs} ms: ${what}` });
    await sleep(50);
  }
}

let markers = 0;

/** An argument for `sleep` that no other command line of the box has: long enough to outlast any case. */
export function uniqueSeconds(): string {
  markers += 1;
  return `${4000 + (process.pid % 1000)}.${String(Math.floor(Math.random() * 1e9)).padStart(9, "1")}${markers}`;
}

const LIST_PROCESSES = `
opendir(my $proc, "/proc") or die;
for my $pid (sort { $a <=> $b } grep { /^[0-9]+$/ } readdir $proc) {
  open(my $file, "<", "/proc/$pid/cmdline") or next;
  local $/; my $line = <$file>; next unless defined $line && length $line;
  $line =~ tr/\\0\\n/  /; print "$pid $line\\n";
}`;

/** Command lines of the box's processes by pid. Zombies have none. */
export async function processes(box: Runtime): Promise<ReadonlyMap<number, string>> {
  const lines = (await perl(box, LIST_PROCESSES)).split("\n").filter((line) => line !== "");
  return new Map(lines.map((line) => [Number(line.split(" ", 1)[0]), line.slice(line.indexOf(" ") + 1)]));
}

/** How many processes of the box have the text in their command line. */
export async function countProcesses(box: Runtime, marker: string): Promise<number> {
  return [...(await processes(box)).values()].filter((line) => line.includes(marker)).length;
}

/** How many programs of the box are exactly `sleep` for one of these times; a shell that only mentions it does not count. */
export async function sleeping(box: Runtime, ...seconds: readonly string[]): Promise<number> {
  return [...(await sleepers(box, seconds)).keys()].length;
}

/** Waits until that many of them run: a shell starts its background programs when it comes to it. */
export async function untilSleeping(box: Runtime, count: number, ...seconds: readonly string[]): Promise<void> {
  await until(`${count} programs asleep`, async () => (await sleeping(box, ...seconds)) === count);
}

/** Ends such programs, so that a shared box is left as it was found. */
export async function endSleepers(box: Runtime, ...seconds: readonly string[]): Promise<void> {
  const pids = [...(await sleepers(box, seconds)).keys()];
  if (pids.length > 0) await shell(box, `kill -9 ${pids.join(" ")}`);
}

async function sleepers(box: Runtime, seconds: readonly string[]): Promise<ReadonlyMap<number, string>> {
  const lines = await processes(box);
  return new Map(
    [...lines].filter(([, line]) => seconds.includes(/^(?:\/\S+\/)?sleep (\S+) *$/.exec(line)?.[1] ?? "")),
  );
}

/** A program that counts into a file, many times a second, and outlives the exec that starts it. */
export async function startCounter(box: Runtime, file: string): Promise<void> {
  await shell(
    box,
    `(i=0; while :; do i=$((i+1)); echo $i >${file}.new; mv ${file}.new ${file}; sleep 0.05; done) </dev/null >/dev/null 2>&1 &`,
  );
  const first = await readCounter(box, file);
  await until("the counter counting", async () => (await readCounter(box, file)) > first);
}

export async function readCounter(box: Runtime, file: string): Promise<number> {
  const bytes = await box.readBounded(file, { maxBytes: 100 });
  return bytes === null ? 0 : Number(text(bytes));
}

// A handler in %SIG waits until a system call returns, and the resolver takes its time.
const DIAL = `
use Socket qw(getaddrinfo SOCK_STREAM SOCK_DGRAM); use POSIX ();
my ($protocol, $host, $port, $seconds) = @ARGV;
my $type = $protocol eq "udp" ? SOCK_DGRAM : SOCK_STREAM;
POSIX::sigaction(14, POSIX::SigAction->new(sub { syswrite(STDOUT, "no answer within $seconds s"); POSIX::_exit(0) })); alarm $seconds;
my ($error, @found) = getaddrinfo($host, $port, { socktype => $type });
if ($error) { print "cannot resolve: $error"; exit 0 }
my $last = "no address";
for my $it (@found) {
  socket(my $socket, $it->{family}, $type, 0) or do { $last = "$!"; next };
  connect($socket, $it->{addr}) or do { $last = "$!"; next };
  if ($protocol eq "connect") { print "reached"; exit 0 }
  syswrite($socket, "hello\\n") or do { $last = "$!"; next };
  sysread($socket, my $reply, 6) or do { $last = "no reply: $!"; next };
  print "reached"; exit 0;
}
print "failed: $last";`;

/** Tries to reach a server from inside the box: `reached`, or why not. `connect` is TCP without waiting for an echo. */
export async function dial(
  box: Runtime,
  target: { readonly host: string; readonly port: number; readonly protocol?: "tcp" | "udp" | "connect" | undefined },
  seconds = 10,
): Promise<string> {
  return perl(box, DIAL, [target.protocol ?? "tcp", target.host, String(target.port), String(seconds)]);
}

/** Whether a name has an address, asked inside the box. */
export async function resolves(box: Runtime, name: string): Promise<boolean> {
  const program = `use Socket qw(getaddrinfo); use POSIX ();
POSIX::sigaction(14, POSIX::SigAction->new(sub { syswrite(STDOUT, "no"); POSIX::_exit(0) })); alarm 15;
my ($error) = getaddrinfo($ARGV[0], ""); print $error ? "no" : "yes";`;
  return (await perl(box, program, [name])) === "yes";
}

/**
 * A file that programs of the box wait for: `wait` is the shell command that does, `open` makes the file. What has to happen in an order is
 * put in order by it, not by times.
 */
export function gate(box: Runtime): { readonly wait: string; readonly open: () => Promise<void> } {
  const file = `/var/tmp/gate-${uniqueSeconds()}`;
  return {
    wait: `until [ -e ${file} ]; do sleep 0.1; done`,
    open: async () => {
      await shell(box, `: >${file}`);
    },
  };
}

/** How long it takes here and now, in milliseconds: what other times of the same case are compared with. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

/** The most that this process's memory grew while the work was done, sampled. */
export async function memoryGrowth(work: () => Promise<void>): Promise<number> {
  globalThis.gc?.();
  const before = process.memoryUsage.rss();
  let peak = before;
  const timer = setInterval(() => {
    peak = Math.max(peak, process.memoryUsage.rss());
  }, 10);
  try {
    await work();
  } finally {
    clearInterval(timer);
  }
  return Math.max(peak, process.memoryUsage.rss()) - before;
}

/** A prerequisite that `prerequisites` promised. */
export function given<T>(value: T | undefined): T {
  if (value === undefined) throw new TypeError("the case does not name a prerequisite that it uses");
  return value;
}

/** What one entry of a tree is, seen by programs of the box. */
export interface SeenEntry {
  readonly type: "file" | "directory" | "link" | "other";
  readonly mode: string;
  readonly owner: string;
  readonly content: string | null;
  readonly linkTarget: string | null;
}

/** Everything below a directory of the box, by relative path, with contents as text. For small trees. */
export async function tree(box: Runtime, directory: string): Promise<ReadonlyMap<string, SeenEntry>> {
  const program = `my @open = ("");
while (@open) {
  my $below = shift @open;
  opendir(my $handle, "$ARGV[0]/$below") or die "$below: $!";
  for my $name (sort readdir $handle) {
    next if $name eq "." || $name eq "..";
    my $path = $below eq "" ? $name : "$below/$name";
    my $full = "$ARGV[0]/$path";
    my @stat = lstat $full or die "$path: $!";
    my $type = -l _ ? "link" : -d _ ? "directory" : -f _ ? "file" : "other";
    my $data = "";
    if ($type eq "link") { $data = readlink $full }
    if ($type eq "file") { open(my $file, "<", $full) or die "$path: $!"; local $/; $data = <$file> // "" }
    print join(" ", unpack("H*", $path), $type, sprintf("%04o", $stat[2] & 07777), "$stat[4]:$stat[5]", unpack("H*", $data)), "\\n";
    push @open, $path if $type eq "directory";
  }
}`;
  const decode = (hex: string | undefined): string => Buffer.from(hex ?? "", "hex").toString("latin1");
  const entries = (await perl(box, program, [directory])).split("\n").slice(0, -1);
  return new Map(
    entries.map((line) => {
      const [path, type, mode = "", owner = "", data] = line.split(" ");
      const kind = type as SeenEntry["type"];
      return [
        Buffer.from(path ?? "", "hex").toString("utf8"),
        {
          type: kind,
          mode,
          owner,
          content: kind === "file" ? decode(data) : null,
          linkTarget: kind === "link" ? decode(data) : null,
        },
      ];
    }),
  );
}
