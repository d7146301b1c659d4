import assert from "node:assert/strict";
import type { Runtime } from "@breakwater/runtime-api";
import { assertAnswers, PATIENCE_MS, perl, rejection, shell, text, timed } from "../box-tools.ts";
import type { ConformanceCase } from "../case.ts";
import { limit } from "../needs.ts";

const MiB = 1024 * 1024;

/** Takes memory and touches it. */
const ALLOCATE = `my $taken = "a" x ($ARGV[0] * 1048576); print "taken\\n"`;

/** Four busy loops for 10 s; prints the seconds of processors that they had. */
const BURN = `my $end = time + 10; my $parent = $$; for (1..3) { last if !fork }
1 while time < $end; exit if $$ != $parent; 1 while wait > 0; my ($u, $s, $cu, $cs) = times; print $u + $s + $cu + $cs`;

export const limitsCases: readonly ConformanceCase[] = [
  {
    id: "limits.memory",
    level: "MUST",
    title: "end a program that takes more memory than the box has, count it, and keep the box",
    promise: "memoryMb: enforced; report() shows oomKills from the backend's own records.",
    needs: [limit("memory")],
    covers: ["B103"],
    async run({ ownBox }) {
      const box = await ownBox({ memoryMb: 128 });
      assert.equal(await perl(box, ALLOCATE, ["16"]), "taken\n");
      const before = (await box.report()).oomKills;
      const result = await box.exec(["perl", "-e", ALLOCATE, "400"], { timeoutMs: PATIENCE_MS });
      assert.deepEqual([result.exitCode, text(result.stdout)], [137, ""]);
      const report = await box.report();
      if (before !== null) assert.ok((report.oomKills ?? 0) > before, "the end by memory was not counted");
      assert.equal(report.endedBy, null);
      await assertAnswers(box);
    },
  },
  {
    id: "limits.memory-not-guessed",
    level: "MUST",
    title: "not take every 137 for an end by memory",
    promise: "oomKills: from the backend's counters, never from 137.",
    needs: [limit("memory")],
    covers: ["B21", "B103"],
    async run({ ownBox }) {
      const box = await ownBox({ memoryMb: 128 });
      assert.equal((await box.exec(["sh", "-c", "kill -9 $$"])).exitCode, 137);
      const { oomKills } = await box.report();
      assert.ok(oomKills === 0 || oomKills === null, `oomKills is ${oomKills}`);
    },
  },
  {
    id: "limits.memory-swap",
    level: "MUST",
    title: "count swap as memory",
    promise: "memoryMb: swap included.",
    needs: [limit("memory")],
    covers: ["B103"],
    async run({ ownBox }) {
      const box = await ownBox({ memoryMb: 64 });
      assert.equal(await perl(box, ALLOCATE, ["8"]), "taken\n");
      for (const size of ["100", "1000"])
        assert.equal(
          (await box.exec(["perl", "-e", ALLOCATE, size], { timeoutMs: PATIENCE_MS })).exitCode,
          137,
          `${size} MiB were taken`,
        );
      await assertAnswers(box);
    },
  },
  {
    id: "limits.pids",
    level: "MUST",
    title: "stop a program from making more processes than the limit, and keep the box answering",
    promise: "pidsLimit: processes and threads, our own few included.",
    needs: [limit("pids")],
    async run({ ownBox }) {
      const box = await ownBox({ pidsLimit: 100 });
      const count = `my @made; while (@made < 400) { my $pid = fork; last unless defined $pid; if (!$pid) { sleep 100; exit } push @made, $pid } print scalar @made; kill 9, @made`;
      const made = Number(await perl(box, count));
      assert.ok(made >= 20 && made <= 100, `${made} processes were made`);
      await assertAnswers(box);
    },
  },
  {
    id: "limits.pids-full",
    level: "MUST",
    title: "end an exec that filled the limit at its deadline",
    promise: "timeoutMs kills everything that this exec started.",
    needs: [limit("pids")],
    covers: ["B19"],
    alone: true,
    async run({ ownBox }) {
      const box = await ownBox({ pidsLimit: 100 });
      const fill = `$| = 1; for (1..400) { my $pid = fork; if (!defined $pid) { print "full\\n"; last } if (!$pid) { sleep 1000 while 1 } } sleep 1000`;
      const result = await box.exec(["perl", "-e", fill], { timeoutMs: 20_000 });
      assert.deepEqual([result.timedOut, text(result.stdout)], [true, "full\n"]);
      await assertAnswers(box);
    },
  },
  {
    id: "limits.cpus",
    level: "MUST",
    title: "give a box no more of the processors than it asked for",
    promise: "cpus: enforced.",
    needs: [limit("cpus")],
    alone: true,
    timeoutMs: 900_000,
    async run({ ownBox }) {
      const boxes = await Promise.all([ownBox(), ownBox({ cpus: 0.05 })]);
      const giveUp = performance.now() + 10 * PATIENCE_MS;
      for (;;) {
        // Side by side, so that both see the same machine.
        let used: readonly number[] = [];
        const wallMs = await timed(async () => {
          used = await Promise.all(boxes.map(async (box) => Number(await perl(box, BURN))));
        });
        const [free = 0, limited = 0] = used;
        const most = (1.2 * 0.05 * wallMs) / 1000 + 0.2;
        assert.ok(limited < most, `with a twentieth of a core busy loops had ${limited} s of ${Math.round(wallMs)} ms`);
        // A machine that is too busy to give that much to anybody shows nothing, unless the kernel says that it held the box back.
        if (free > 1.5 * most || (await timesThrottled(boxes[1])) > 0) return;
        assert.ok(
          performance.now() < giveUp,
          `without a limit busy loops had only ${free} s of ${Math.round(wallMs)} ms`,
        );
      }
    },
  },
  {
    id: "limits.storage",
    level: "MUST",
    title: "let a box write no more than its storage",
    promise: "storageMb: enforced where claimed.",
    needs: [limit("storage")],
    covers: ["B14"],
    async run({ ownBox }) {
      const box = await ownBox({ storageMb: 256 });
      await shell(box, "head -c 50M /dev/zero >/var/tmp/some");
      assert.notEqual(
        (await box.exec(["sh", "-c", "head -c 400M /dev/zero >/var/tmp/more"], { timeoutMs: PATIENCE_MS })).exitCode,
        0,
      );
      await rejection(box.upload([{ path: "x", content: new Uint8Array(64 * MiB) }], "/var/tmp"), "ERR_DISK_FULL");
      await assertAnswers(box);
    },
  },
  {
    id: "limits.report",
    level: "MUST",
    title: "report a running box as running, with the memory file systems that it has",
    promise: "report(): endedBy is null while the box runs; memoryMounts are the mount points whose files are lost.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      const report = await box.report();
      assert.deepEqual([report.endedBy, report.exitCode], [null, null]);
      const mounted = (
        await shell(
          box,
          "while read -r device place type rest; do [ $type = tmpfs ] && echo $place; done </proc/mounts; true",
        )
      ).split("\n");
      for (const place of ["/dev/shm", "/tmp", "/run"].filter((it) => mounted.includes(it))) {
        assert.ok(report.memoryMounts.includes(place), `${place} is a memory file system and not in the report`);
      }
      if (report.memoryPeakBytes !== null) assert.ok(report.memoryPeakBytes > 0);
    },
  },
  {
    id: "limits.report-stopped",
    level: "MUST",
    title: "report a box that we stopped as stopped by us",
    promise: "endedBy: stopped = we stopped it.",
    async run({ ownBox }) {
      const box = await ownBox();
      await box.stopConfirmed();
      assert.equal((await box.report()).endedBy, "stopped");
    },
  },
];

/** How often the kernel held a box back, where the box's control group can be seen from inside; else 0. */
async function timesThrottled(box: Runtime): Promise<number> {
  const counters = await shell(box, "cat /sys/fs/cgroup/cpu.stat /sys/fs/cgroup/cpu*/cpu.stat 2>/dev/null; true");
  return Number(/^nr_throttled (\d+)$/m.exec(counters)?.[1] ?? 0);
}
