import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Runtime, ServiceHealthcheck, ServiceSpec } from "@breakwater/runtime-api";
import { given, rejection, shell, text } from "../box-tools.ts";
import type { CaseContext, ConformanceCase } from "../case.ts";
import { networkMode, readsAfterStop, services } from "../needs.ts";
import { OwnerProcess } from "../owner-process.ts";

const TIMEOUT_MS = 400_000;
const SHARED = { volume: "shared", path: "/shared", readOnly: false } as const;
const ORDER = "/shared/order";
const FOREVER = "exec sleep 100000";

function healthyWhen(test: string, retries = 60): ServiceHealthcheck {
  return { argv: ["sh", "-c", test], intervalMs: 1000, timeoutMs: 10_000, startPeriodMs: 0, retries };
}

function service({ image }: CaseContext, name: string, script: string, more: Partial<ServiceSpec> = {}): ServiceSpec {
  return { name, image, command: ["sh", "-c", script], ...more };
}

async function inService(box: Runtime, name: string, script: string): Promise<string> {
  const { exitCode, stdout, stderr } = await box.service(name).exec(["sh", "-c", script]);
  assert.equal(exitCode, 0, text(stderr));
  return text(stdout);
}

/** The network interfaces of a box besides its loopback. */
const INTERFACES =
  "sed -n 's/^ *\\([^:]*\\):.*/\\1/p' /proc/net/dev | grep -vx 'lo\\|Inter-.*\\|face.*' | sort | tr '\\n' ' '";

async function assertNothingLeft({ objectsOf }: CaseContext, box: Runtime): Promise<void> {
  const left = await objectsOf(box);
  assert.deepEqual(left, [], `left behind: ${left.map((it) => `${it.kind} ${it.id}`).join(", ")}`);
}

export const servicesCases: readonly ConformanceCase[] = [
  {
    id: "lifecycle.service-order",
    level: "MUST",
    title: "start services each when those are ready that it depends on, and the main box when all are healthy",
    promise: "Services start in the order of dependsOn; start returns when those with a healthcheck are healthy.",
    needs: [services],
    covers: ["B72"],
    timeoutMs: TIMEOUT_MS,
    async run(context) {
      const note = (name: string): string => `echo ${name} >>${ORDER}`;
      const box = await context.ownBox({
        volumes: [SHARED],
        services: [
          service(context, "third", `${note("third")}; sleep 1; touch /shared/ready; ${FOREVER}`, {
            dependsOn: { second: "healthy" },
            volumes: [SHARED],
            healthcheck: healthyWhen("test -e /shared/ready"),
          }),
          service(context, "second", `sleep 1; ${note("second")}; touch /tmp/up; ${FOREVER}`, {
            dependsOn: { first: "completed" },
            volumes: [SHARED],
            healthcheck: healthyWhen("test -e /tmp/up"),
          }),
          service(context, "first", `sleep 1; ${note("first")}`, { volumes: [SHARED] }),
        ],
      });
      assert.equal(await shell(box, `cat ${ORDER}; ls /shared/ready`), "first\nsecond\nthird\n/shared/ready\n");
    },
  },
  {
    id: "lifecycle.service-unhealthy",
    level: "MUST",
    title: "reject a start whose service does not become healthy or cannot be started, and leave nothing behind",
    promise: "When start rejects, nothing is left behind.",
    needs: [services],
    covers: ["B54", "B72"],
    timeoutMs: TIMEOUT_MS,
    async run(context) {
      const fine = service(context, "fine", FOREVER);
      for (const broken of [
        service(context, "broken", FOREVER, { healthcheck: healthyWhen("false", 2) }),
        { name: "broken", image: context.image, command: ["/no/such/program"] },
      ]) {
        const box = context.newBox({ services: [fine, broken] });
        const error = await rejection(box.start({ signal: context.signal }), "ERR_BOX_START");
        assert.match(error.message, /broken/, "the message does not name the service");
        await assertNothingLeft(context, box);
      }
    },
  },
  {
    id: "lifecycle.service-files",
    level: "MUST",
    title: "give a service its copies before its program starts, and let boxes share volumes as they were asked to",
    promise: "A volume is a folder that boxes of one spec share; copies are there before the program starts.",
    needs: [services],
    timeoutMs: TIMEOUT_MS,
    async run(context) {
      const folder = await mkdtemp(join(tmpdir(), "breakwater-conformance-"));
      try {
        await writeFile(join(folder, "words.txt"), "from the host\n", { mode: 0o600 });
        const box = await context.ownBox({
          volumes: [SHARED],
          services: [
            service(context, "copier", `cat /in/words.txt /etc/words >/shared/seen; ${FOREVER}`, {
              volumes: [SHARED],
              copies: [
                { source: folder, path: "/in" },
                { source: join(folder, "words.txt"), path: "/etc/words" },
              ],
              healthcheck: healthyWhen("test -s /shared/seen"),
            }),
            service(context, "reader", FOREVER, { volumes: [{ ...SHARED, readOnly: true }] }),
          ],
        });
        assert.equal(await shell(box, "cat /shared/seen"), "from the host\nfrom the host\n");
        const owned = await inService(box, "copier", "stat -c '%u:%g %a' /in/words.txt /etc/words");
        assert.equal(owned, "0:0 644\n0:0 644\n", "copies are root's, and everybody may read them");
        const written = await inService(
          box,
          "reader",
          "cat /shared/seen; echo x 2>&- >/shared/x && echo written || true",
        );
        assert.equal(written, "from the host\nfrom the host\n", "a volume that is read-only was written to");
      } finally {
        await rm(folder, { recursive: true, force: true });
      }
    },
  },
  {
    id: "lifecycle.service-after-main",
    level: "MUST",
    title: "run programs in a service and read its files when the main box runs nothing any more",
    promise: "stopConfirmed acts on the main box; a service has its own exec, download, readBounded and stopConfirmed.",
    needs: [services, readsAfterStop],
    covers: ["B42"],
    timeoutMs: TIMEOUT_MS,
    async run(context) {
      const box = await context.ownBox({ services: [service(context, "peer", FOREVER)] });
      await shell(box, "echo forged >/var/tmp/evidence");
      await box.stopConfirmed();
      await rejection(box.exec(["true"]), "ERR_BOX_STATE");
      await inService(box, "peer", "echo genuine >/var/tmp/evidence");
      const peer = box.service("peer");
      const read = async (from: Pick<Runtime, "readBounded">): Promise<string | null> => {
        const bytes = await from.readBounded("/var/tmp/evidence", { maxBytes: 100 });
        return bytes === null ? null : text(bytes);
      };
      assert.deepEqual([await read(peer), await read(box)], ["genuine\n", "forged\n"]);
      await peer.stopConfirmed();
      await rejection(peer.exec(["true"]), "ERR_BOX_STATE");
      assert.equal(await read(peer), "genuine\n");
      assert.equal((await peer.report()).endedBy, "stopped");
    },
  },
  {
    id: "lifecycle.service-network",
    level: "MUST",
    title: "hold services to the policy of their box, unless they name networks of their own, and to nobody's else",
    promise: "no-network: nothing but the box's own loopback; a service without networks shares the main box's.",
    needs: [services, networkMode("no-network")],
    covers: ["B62"],
    timeoutMs: TIMEOUT_MS,
    async run(context) {
      const box = await context.ownBox({
        network: { initial: { mode: "no-network" } },
        services: [
          service(context, "inside", FOREVER),
          service(context, "outside", FOREVER, { networks: ["default"] }),
        ],
      });
      const seen = [await shell(box, INTERFACES), await inService(box, "inside", INTERFACES)];
      assert.notEqual(await inService(box, "outside", INTERFACES), "", "a service with a network of its own has none");
      assert.deepEqual(seen, ["", ""], "more than loopback is in the box's network");
      assert.equal(
        await shell(box, "getent hosts inside >/dev/null && ! getent hosts outside >/dev/null && echo so"),
        "so\n",
      );
      await shell(box, "echo 192.0.2.1 inside >>/etc/hosts || true");
      assert.doesNotMatch(
        await inService(box, "inside", "cat /etc/hosts"),
        /192\.0\.2\.1/,
        "names can be led elsewhere",
      );
    },
  },
  {
    id: "lifecycle.service-lost",
    level: "MUST",
    title: "tell a program that ended from one whose service was ended from outside",
    promise:
      "Box lost is a typed error and never an exit code; an end that nobody in the box brought about is the backend's.",
    needs: [services],
    prerequisites: ["sabotage.endService"],
    covers: ["B14", "B102"],
    timeoutMs: TIMEOUT_MS,
    async run(context) {
      const { ownBox, sabotage } = context;
      const box = await ownBox({ services: [service(context, "ends", "exit 3"), service(context, "stays", FOREVER)] });
      assert.equal((await box.exec(["true"])).exitCode, 0, "a service whose program has ended is no failure");
      const { endedBy, exitCode } = await box.service("ends").report();
      assert.deepEqual([endedBy, exitCode], ["contents", 3]);
      await given(sabotage.endService)(box, "stays");
      await rejection(box.exec(["true"]), "ERR_NETWORK_LOST");
    },
  },
];

export const sweepServicesCase: ConformanceCase = {
  id: "leaks.sweep-services",
  level: "MUST",
  title: "remove services, networks and volumes that a dead owner left, and leave those of a live one alone",
  promise: "Every object that we create carries labels; sweep removes exactly what dead or expired owners left.",
  needs: [services],
  prerequisites: ["driverModule"],
  covers: ["B53"],
  alone: true,
  timeoutMs: TIMEOUT_MS,
  async run(context) {
    const { driver, newBox, objectsOfTrial } = context;
    const { image, network, lifetimeMs, trial } = newBox().spec;
    const spec = {
      image,
      network,
      lifetimeMs,
      trial: `${trial}-owner`,
      volumes: [SHARED],
      services: [
        service(context, "inside", FOREVER, { volumes: [SHARED] }),
        service(context, "outside", FOREVER, { networks: ["default"] }),
      ],
    };
    const owner = await OwnerProcess.start(given(context.driverModule), spec);
    try {
      const made = await objectsOfTrial(spec.trial);
      await driver.sweep();
      assert.equal((await objectsOfTrial(spec.trial)).length, made.length, "a live owner's objects were swept");
      assert.ok(made.length >= 3, "services are not among what sweep lists");
    } finally {
      await owner.kill();
    }
    await driver.sweep();
    assert.deepEqual(await objectsOfTrial(spec.trial), []);
  },
};
