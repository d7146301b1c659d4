import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import {
  assertAnswers,
  PATIENCE_MS,
  perl,
  processes,
  shell,
  sleeping,
  text,
  uniqueSeconds,
  untilSleeping,
} from "../box-tools.ts";
import type { ConformanceCase } from "../case.ts";
import { limit, ownFirstProcess } from "../needs.ts";

/** Sends every signal there is to every process but itself, the first one included. */
const EVERY_SIGNAL = `opendir(my $proc, "/proc") or die; my @pids = grep { /^[0-9]+$/ && $_ != $$ } readdir $proc;
for my $signal (1..64) { next if $signal == 9; kill $signal, 1, @pids } kill 9, 1, @pids; print "sent\\n"`;

/** Writes over the memory of a process, as a debugger could. */
const OVERWRITE_MEMORY = `my $pid = $ARGV[0]; if ($pid eq "child") { $pid = fork // die; if (!$pid) { select(undef, undef, undef, 0.05) while 1 } select(undef, undef, undef, 0.3) }
open(my $maps, "<", "/proc/$pid/maps") or print "maps: $!\\n"; my @ranges = $maps ? map { /^([0-9a-f]+)-([0-9a-f]+) r.x/ ? [hex $1, hex $2] : () } <$maps> : ();
if (open(my $memory, "+<", "/proc/$pid/mem")) { for (@ranges) { sysseek($memory, $_->[0], 0); syswrite($memory, "\\0" x ($_->[1] - $_->[0])) } print "written\\n" } else { print "mem: $!\\n" }
if ($ARGV[0] eq "child") { for (1..600) { select(undef, undef, undef, 0.1); if (waitpid($pid, 1) == $pid) { print "child ended\\n"; exit 0 } } print "child lives\\n"; kill 9, $pid }`;

/** Takes every resource limit of a process down to nothing: a program whose limits are 0 ends when it needs anything. */
const STARVE = `my $call = { x86_64 => 302, aarch64 => 261 }->{(POSIX::uname())[4]} or do { print "unknown machine\\n"; exit 0 };
my $pid = $ARGV[0]; if ($pid eq "child") { $pid = fork // die; if (!$pid) { 1 while 1 } select(undef, undef, undef, 0.3) }
my $set = 0; for my $resource (2, 9, 7, 0) { my $limit = pack("QQ", 0, 0); $set++ if syscall($call, $pid + 0, $resource, $limit, 0) == 0 } print "set $set\\n";
if ($ARGV[0] eq "child") { for (1..1200) { select(undef, undef, undef, 0.1); if (waitpid($pid, 1) == $pid) { print "child ended\\n"; exit 0 } } print "child lives\\n"; kill 9, $pid }`;

const FORK_BOMB = `for (1..8) { fork } my $forked = 0; for (;;) { my $pid = fork; if (!defined $pid) { select(undef, undef, undef, 0.05) } elsif ($pid == 0) { sleep 1000 while 1 } }`;

export const isolationCases: readonly ConformanceCase[] = [
  {
    id: "isolation.cannot-end-own-box",
    level: "MUST",
    title: "let root in the box send every signal and kill everything: the box still answers",
    promise:
      "Root in the box must not be able to end it: our hold ignores every signal that a process of the box can send.",
    needs: [ownFirstProcess],
    covers: ["B59"],
    async run({ ownBox }) {
      const box = await ownBox();
      const [victim, other] = [uniqueSeconds(), uniqueSeconds()];

      await shell(box, `(setsid sleep ${victim} >/dev/null 2>&1 &)`);
      await untilSleeping(box, 1, victim);
      await box.exec(["perl", "-e", EVERY_SIGNAL], { timeoutMs: PATIENCE_MS }).catch(() => undefined);
      await assertAnswers(box);
      // Had they ended nothing, they would prove nothing.
      await untilSleeping(box, 0, victim);

      await shell(box, `(setsid sleep ${other} >/dev/null 2>&1 &)`);
      await untilSleeping(box, 1, other);
      await box.exec(["sh", "-c", "kill -9 -1; kill -9 1"], { timeoutMs: PATIENCE_MS }).catch(() => undefined);
      await assertAnswers(box);
      await untilSleeping(box, 0, other);
      assert.equal((await box.report()).endedBy, null);
    },
  },
  {
    id: "isolation.cannot-fork-box-to-death",
    level: "MUST",
    title: "let root in the box fork to its limit: the box still answers",
    promise: "Root in the box must not be able to end it. pidsLimit: processes and threads.",
    needs: [ownFirstProcess, limit("pids")],
    covers: ["B59"],
    alone: true,
    timeoutMs: 400_000,
    async run({ ownBox }) {
      const box = await ownBox({ pidsLimit: 256 });
      const bomb = await box.exec(["perl", "-e", FORK_BOMB], { timeoutMs: 5000 });
      assert.deepEqual([bomb.timedOut, text(bomb.stdout)], [true, ""], `exit ${bomb.exitCode}: ${text(bomb.stderr)}`);
      assert.ok((await processes(box)).size < 20, "the bomb's processes are still there");
      await assertAnswers(box);
      assert.equal((await box.report()).endedBy, null);
    },
  },
  {
    id: "isolation.cannot-write-first-process",
    level: "MUST",
    title: "keep root in the box from overwriting the memory of the first process",
    promise: "Root in the box must not be able to end it.",
    needs: [ownFirstProcess],
    async run({ ownBox }) {
      const box = await ownBox();
      assert.match(
        await perl(box, OVERWRITE_MEMORY, ["child"], { timeoutMs: 2 * PATIENCE_MS }),
        /written\nchild ended/,
        "the attack does not work on an ordinary process",
      );
      const attack = await perl(box, OVERWRITE_MEMORY, ["1"]);
      assert.doesNotMatch(attack, /written/, "the first process's memory can be written");
      await assertAnswers(box);
    },
  },
  {
    id: "isolation.cannot-starve-first-process",
    level: "MUST",
    title: "keep root in the box from taking the first process's limits away",
    promise: "Root in the box must not be able to end it.",
    needs: [ownFirstProcess],
    timeoutMs: 480_000,
    async run({ ownBox }) {
      const box = await ownBox();
      // A limit of no time at all ends a program after a second of it, which it may have to wait for.
      const starve = `use POSIX (); ${STARVE}`;
      const proof = await perl(box, starve, ["child"], { timeoutMs: 3 * PATIENCE_MS });
      if (proof !== "unknown machine\n")
        assert.match(proof, /set 4\nchild ended/, "the attack does not work on an ordinary process");
      await perl(box, starve, ["1"]);
      // What a first process has to do: reap, and serve further programs.
      for (let round = 0; round < 40; round += 1)
        await shell(box, "for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.01 &) ; done");
      await assertAnswers(box);
      assert.equal((await box.report()).endedBy, null);
    },
  },
  {
    id: "isolation.boxes-apart",
    level: "MUST",
    title: "keep files and processes of one box out of another",
    promise: "One box: its own files and processes.",
    async run({ ownBox }) {
      const [one, other] = await Promise.all([ownBox(), ownBox()]);
      const marker = uniqueSeconds();
      await shell(
        one,
        `(setsid sleep ${marker} >/dev/null 2>&1 &); for place in /tmp /var/tmp /dev/shm /root /etc; do echo x >$place/${marker}; done`,
      );
      await untilSleeping(one, 1, marker);
      assert.equal(await sleeping(other, marker), 0, "a box sees another one's processes");
      assert.equal(
        await shell(
          other,
          `ls /tmp/${marker} /var/tmp/${marker} /dev/shm/${marker} /root/${marker} /etc/${marker} 2>/dev/null; true`,
        ),
        "",
      );
    },
  },
  {
    id: "isolation.no-files-of-the-host",
    level: "MUST",
    title: "show a box no file of this host",
    promise: "Boxes get no binds and no volumes.",
    covers: ["B35", "B91"],
    async run({ ownBox }) {
      const box = await ownBox();
      const places = await Promise.all(
        [tmpdir(), homedir(), process.cwd()].map((it) => mkdtemp(join(it, ".conformance-canary-"))),
      );
      try {
        for (const place of places) {
          await writeFile(join(place, "canary"), "of the host");
          assert.equal(await shell(box, `cat '${place}/canary' 2>/dev/null || echo absent`), "absent\n", place);
        }
      } finally {
        await Promise.all(places.map((place) => rm(place, { recursive: true, force: true })));
      }
    },
  },
  {
    id: "isolation.no-control-socket",
    level: "MUST",
    title: "leave no socket in a box that something outside listens on",
    promise: "Boxes get no binds and no volumes.",
    covers: ["B99"],
    async run({ ownBox }) {
      const box = await ownBox();
      const bind = `use Socket; socket(my $s, AF_UNIX, SOCK_STREAM, 0); bind($s, sockaddr_un("/run/proof")) or die $!`;
      await perl(box, bind);
      assert.equal(await shell(box, "find / -path /proc -prune -o -type s -print 2>/dev/null; true"), "/run/proof\n");
    },
  },
];
