import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import {
  assertAnswers,
  memoryGrowth,
  mistake,
  PATIENCE_MS,
  expectedError,
  rejection,
  shell,
  text,
  uniqueSeconds,
} from "../box-tools.ts";
import type { ConformanceCase } from "../case.ts";

const MiB = 1024 * 1024;

export const readBoundedCases: readonly ConformanceCase[] = [
  {
    id: "read-bounded.exact",
    level: "MUST",
    title: "give a file of at most maxBytes as it is, an empty one too",
    promise: "readBounded: at most maxBytes.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      const directory = `/tmp/read-${uniqueSeconds()}`;
      await shell(
        box,
        `mkdir ${directory}; cd ${directory}; : >empty; printf '\\000\\377x\\r\\n' >five; chmod 0000 five; head -c 8190 /dev/zero | tr '\\0' a >text; printf '€€€' >>text`,
      );
      assert.deepEqual(await bytesOf(box.readBounded(`${directory}/empty`, { maxBytes: 1 })), []);
      assert.deepEqual(await bytesOf(box.readBounded(`${directory}/empty`, { maxBytes: 0 })), []);
      assert.deepEqual(
        await bytesOf(box.readBounded(`${directory}/five`, { maxBytes: 5 })),
        [0, 0xff, 0x78, 0x0d, 0x0a],
      );
      assert.equal(
        text((await box.readBounded(`${directory}/text`, { maxBytes: MiB })) ?? Buffer.alloc(0)),
        `${"a".repeat(8190)}€€€`,
      );
    },
  },
  {
    id: "read-bounded.missing",
    level: "MUST",
    title: "give null for a file that is not there",
    promise: "Missing is null.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      assert.notEqual(await box.readBounded("/etc/passwd", { maxBytes: MiB }), null);
      assert.equal(await box.readBounded("/etc/no-such-file", { maxBytes: MiB }), null);
      assert.equal(await box.readBounded("/no/such/directory/file", { maxBytes: MiB }), null);
    },
  },
  {
    id: "read-bounded.too-long",
    level: "MUST",
    title: "reject a file that is one byte too long",
    promise: "Longer is ERR_LIMIT; never a part.",
    covers: ["B38"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const file = `/tmp/long-${uniqueSeconds()}`;
      await shell(box, `head -c 1001 /dev/zero >${file}`);
      assert.equal((await box.readBounded(file, { maxBytes: 1001 }))?.length, 1001);
      const error = await rejection(box.readBounded(file, { maxBytes: 1000 }), "ERR_LIMIT");
      assert.equal(error.path, file);
    },
  },
  {
    id: "read-bounded.huge",
    level: "MUST",
    title: "reject a file of 2 GiB at once, without reading it",
    promise: "Within the deadline; memory flat.",
    covers: ["B87"],
    alone: true,
    async run({ sharedBox }) {
      const box = await sharedBox();
      const file = `/tmp/huge-${uniqueSeconds()}`;
      await shell(box, `truncate -s 2G ${file}`);
      const growth = await memoryGrowth(async () => {
        await rejection(box.readBounded(file, { maxBytes: MiB }, { timeoutMs: PATIENCE_MS }), "ERR_LIMIT");
      });
      assert.ok(growth <= 64 * MiB, `resident memory grew by ${Math.round(growth / MiB)} MiB`);
      await shell(box, `rm ${file}`);
      await assertAnswers(box);
    },
  },
  {
    id: "read-bounded.not-a-file",
    level: "MUST",
    title: "reject a directory, a FIFO, a socket and a device, without waiting for any of them",
    promise: "A directory, a FIFO or a device are typed errors, within the deadline.",
    covers: ["B49", "B87"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const directory = `/tmp/kinds-${uniqueSeconds()}`;
      await shell(
        box,
        `mkdir -p ${directory}/directory; mkfifo ${directory}/fifo; perl -e 'use Socket; socket(my $s, AF_UNIX, SOCK_STREAM, 0); bind($s, sockaddr_un("$ARGV[0]")) or die $!' ${directory}/socket`,
      );
      for (const path of [`${directory}/directory`, `${directory}/fifo`, `${directory}/socket`]) {
        const error = await rejection(
          box.readBounded(path, { maxBytes: 1000 }, { timeoutMs: PATIENCE_MS }),
          "ERR_PATH_KIND",
        );
        assert.equal(error.path, path);
      }
    },
  },
  {
    id: "read-bounded.device",
    level: "MUST",
    title: "never read from a device of the box",
    promise: "A device is a typed error, within the deadline.",
    covers: ["B87"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      for (const path of ["/dev/zero", "/dev/full"]) {
        // A backend that reads files from outside does not see a device of the running box: that it says so is enough.
        await rejection(
          box.readBounded(path, { maxBytes: 1000 }, { timeoutMs: PATIENCE_MS }),
          "ERR_PATH_KIND",
          "ERR_PATH_MEMORY",
          "ERR_PATH_DENIED",
        );
      }
    },
  },
  {
    id: "read-bounded.link",
    level: "MUST",
    title: "never follow a link, whatever it points to",
    promise: "A link is a typed error.",
    covers: ["B44", "B87"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const directory = `/tmp/links-${uniqueSeconds()}`;
      await shell(
        box,
        `mkdir ${directory}; cd ${directory}; echo x >target; ln -s target inside; ln -s /etc/passwd outside; ln -s /dev/zero endless; ln -s nowhere dangling; ln -s loop loop`,
      );
      assert.deepEqual(await bytesOf(box.readBounded(`${directory}/target`, { maxBytes: 1000 })), [0x78, 0x0a]);
      for (const name of ["inside", "outside", "endless", "dangling", "loop"]) {
        await rejection(
          box.readBounded(`${directory}/${name}`, { maxBytes: MiB }, { timeoutMs: PATIENCE_MS }),
          "ERR_PATH_LINK",
        );
      }
    },
  },
  {
    id: "read-bounded.link-on-the-way",
    level: "MUST",
    title: "never follow a link on the way to the file",
    promise: "A link is a typed error.",
    covers: ["B44"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const directory = `/tmp/way-${uniqueSeconds()}`;
      await shell(
        box,
        `mkdir -p ${directory}/real; cd ${directory}; echo x >real/file; ln -s real hop; ln -s /proc/self self`,
      );
      assert.notEqual(await box.readBounded(`${directory}/real/file`, { maxBytes: 1000 }), null);
      await rejection(box.readBounded(`${directory}/hop/file`, { maxBytes: 1000 }), "ERR_PATH_LINK");
      await rejection(box.readBounded(`${directory}/self/environ`, { maxBytes: 1000 }), "ERR_PATH_LINK");
    },
  },
  {
    id: "read-bounded.memory-file-system",
    level: "MUST",
    title: "see what programs see on a memory file system, or say that it cannot",
    promise: "ERR_PATH_MEMORY: on a memory file system that the backend cannot reach.",
    covers: ["B30"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const file = `/dev/shm/live-${uniqueSeconds()}`;
      await shell(box, `echo live >${file}`);
      const content = await box.readBounded(file, { maxBytes: 1000 }).catch(async (error: unknown) => {
        expectedError(error, "ERR_PATH_MEMORY");
        return "refused" as const;
      });
      if (content !== "refused") assert.equal(content === null ? null : text(content), "live\n");
    },
  },
  {
    id: "read-bounded.mistakes",
    level: "MUST",
    title: "refuse a relative path, a path with .. and a limit that is no number as a mistake",
    promise: "Programming mistakes are bare TypeErrors.",
    covers: ["B36"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      await mistake(() => box.readBounded("etc/passwd", { maxBytes: 1000 }));
      await mistake(() => box.readBounded("/etc/../etc/passwd", { maxBytes: 1000 }));
      await mistake(() => box.readBounded("/etc/passwd\0", { maxBytes: 1000 }));
      await mistake(() => box.readBounded("/etc/passwd", { maxBytes: Number.NaN }));
      await mistake(() => box.readBounded("/etc/passwd", { maxBytes: -1 }));
    },
  },
];

async function bytesOf(reading: Promise<Uint8Array | null>): Promise<readonly number[] | null> {
  const bytes = await reading;
  return bytes === null ? null : [...bytes];
}
