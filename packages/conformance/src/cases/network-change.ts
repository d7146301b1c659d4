import assert from "node:assert/strict";
import type { NetworkPolicy, Runtime } from "@breakwater/runtime-api";
import { assertAnswers, dial, expectedError, given, mistake, rejection, shell, text } from "../box-tools.ts";
import type { CaseContext, ConformanceCase } from "../case.ts";
import { changesNetwork, cutsConnections, freezes, networkMode } from "../needs.ts";
import { boxClock, converse, get, hello } from "../network-tools.ts";
import { addressesOf, NONE, PUBLIC, startEchoServer } from "./network.ts";
import { hasProxy, listOf } from "./network-allowlist.ts";

/** Every ordered pair of four policies, one after the other. */
const EVERY_TRANSITION = [0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3, 0] as const;

/** What the policy says of three servers, and no more. */
async function assertHolds(box: Runtime, policy: NetworkPolicy, context: CaseContext, when: string): Promise<void> {
  const { allowed, denied } = given(context.network.allowlist);
  for (const host of [allowed, denied]) {
    const isOpen = policy.mode === "public" || (policy.mode === "allowlist" && policy.hosts.includes(host));
    assert.equal((await hello(box, { host })) === "reached", isOpen, `${when}: ${host} by TLS`);
    assert.equal((await get(box, host)) === "reached", isOpen, `${when}: ${host} by HTTP`);
  }
  const direct = await dial(box, given(context.network.reachable));
  assert.equal(direct === "reached", policy.mode === "public", `${when}: a server on another port`);
}

export const networkChangeCases: readonly ConformanceCase[] = [
  {
    id: "network.change-tightens",
    level: "MUST",
    title: "cut open connections when the policy becomes tighter",
    promise: "networkChange cuts: no open connection that the new policy forbids survives.",
    needs: [cutsConnections, networkMode("public"), networkMode("no-network")],
    prerequisites: ["network.reachable"],
    covers: ["B63", "B64"],
    timeoutMs: 240_000,
    async run({ ownBox, network }) {
      const target = given(network.reachable);
      const box = await ownBox({ network: { initial: PUBLIC, later: [NONE] } });
      const conversation = await converse(box, "plain", target);
      await conversation.assertGoesOn();
      await box.setNetwork(NONE);
      await conversation.assertOverBy(await boxClock(box), "the open connection");
      assert.notEqual(await dial(box, target), "reached", "a new connection is possible");
      await assertAnswers(box);
    },
  },
  {
    id: "network.change-cuts-datagrams",
    level: "MUST",
    title: "cut a flow of datagrams when the policy becomes tighter",
    promise: "networkChange cuts: no open connection that the new policy forbids survives.",
    needs: [cutsConnections, networkMode("public"), networkMode("no-network")],
    prerequisites: ["network.datagrams"],
    covers: ["B63"],
    timeoutMs: 240_000,
    async run({ ownBox, network }) {
      const target = given(network.datagrams);
      const box = await ownBox({ network: { initial: PUBLIC, later: [NONE] } });
      const conversation = await converse(box, "datagrams", target);
      await conversation.assertGoesOn();
      await box.setNetwork(NONE);
      await conversation.assertOverBy(await boxClock(box), "the flow of datagrams");
      assert.notEqual(await dial(box, { ...target, protocol: "udp" }), "reached", "a new flow is possible");
      await assertAnswers(box);
    },
  },
  {
    id: "network.change-public-to-allowlist",
    level: "MUST",
    title: "cut what is open when a list comes into force, and open what is on it",
    promise: "networkChange cuts: no open connection that the new policy forbids survives.",
    needs: [cutsConnections, networkMode("public"), networkMode("allowlist")],
    prerequisites: ["network.allowlist", "network.datagrams"],
    covers: ["B63"],
    timeoutMs: 240_000,
    async run({ ownBox, network }) {
      const { allowed, echo } = given(network.allowlist);
      const list = listOf(allowed);
      const box = await ownBox({ network: { initial: PUBLIC, later: [list] } });
      const stream = await converse(box, "tls", { host: echo });
      const datagrams = await converse(box, "datagrams", given(network.datagrams));
      await stream.assertGoesOn();
      await datagrams.assertGoesOn();
      await box.setNetwork(list);
      const moment = await boxClock(box);
      await stream.assertOverBy(moment, "the open connection");
      await datagrams.assertOverBy(moment, "the flow of datagrams");
      assert.equal(await hello(box, { host: allowed }), "reached", "the listed host");
      assert.notEqual(await hello(box, { host: echo }), "reached", "the connection can be opened again");
    },
  },
  {
    id: "network.change-cuts-tunnels",
    level: "MUST",
    title: "cut open tunnels to hosts that are not on the new list, and let them be opened again",
    promise: "A change cuts open tunnels.",
    needs: [cutsConnections, networkMode("allowlist"), networkMode("no-network")],
    prerequisites: ["network.allowlist"],
    covers: ["B63", "B64"],
    timeoutMs: 300_000,
    async run({ ownBox, network }) {
      const { allowed, echo } = given(network.allowlist);
      const [withEcho, without] = [listOf(echo), listOf(allowed)];
      const box = await ownBox({ network: { initial: withEcho, later: [without, NONE] } });
      const ways = (await hasProxy(box)) ? (["tls", "tunnel"] as const) : (["tls"] as const);
      for (const policy of [without, NONE]) {
        const conversations = await Promise.all(ways.map((way) => converse(box, way, { host: echo })));
        for (const conversation of conversations) await conversation.assertGoesOn();
        await box.setNetwork(policy);
        const moment = await boxClock(box);
        for (const conversation of conversations) await conversation.assertOverBy(moment, "the open tunnel");
        assert.notEqual(await hello(box, { host: echo }), "reached", "a new tunnel is possible");
        await box.setNetwork(withEcho);
        await (await converse(box, "tls", { host: echo })).assertGoesOn();
      }
    },
  },
  {
    id: "network.change-every-transition",
    level: "MUST",
    title: "change among public, no network and two lists in every order, each time in full",
    promise: "setNetwork: when it returns the new policy holds; never half applied.",
    needs: [cutsConnections, networkMode("public"), networkMode("no-network"), networkMode("allowlist")],
    prerequisites: ["network.allowlist", "network.reachable"],
    covers: ["B64"],
    timeoutMs: 600_000,
    async run(context) {
      const { allowed, denied } = given(context.network.allowlist);
      const policies = [PUBLIC, NONE, listOf(allowed), listOf(denied)] as const;
      const box = await context.ownBox({ network: { initial: PUBLIC, later: policies } });
      for (const [step, index] of EVERY_TRANSITION.entries()) {
        const policy = policies[index];
        if (step > 0) await box.setNetwork(policy);
        const before = EVERY_TRANSITION[step - 1];
        const from = before === undefined ? "the start" : JSON.stringify(policies[before]);
        await assertHolds(box, policy, context, `from ${from} to ${JSON.stringify(policy)}`);
      }
      await assertAnswers(box);
    },
  },
  {
    id: "network.change-from-every-start",
    level: "MUST",
    title: "widen to every policy from a box that was started with less",
    promise: "setNetwork: to a policy that the spec announced.",
    needs: [cutsConnections, networkMode("public"), networkMode("no-network"), networkMode("allowlist")],
    prerequisites: ["network.allowlist", "network.reachable"],
    timeoutMs: 600_000,
    async run(context) {
      const list = listOf(given(context.network.allowlist).allowed);
      for (const [initial, next] of [
        [NONE, PUBLIC],
        [NONE, list],
        [list, PUBLIC],
        [list, NONE],
      ] as const) {
        const box = await context.ownBox({ network: { initial, later: [next] } });
        await assertHolds(box, initial, context, `started with ${JSON.stringify(initial)}`);
        await box.setNetwork(next);
        await assertHolds(box, next, context, `from ${JSON.stringify(initial)} to ${JSON.stringify(next)}`);
        await box.setNetwork(initial);
        await assertHolds(box, initial, context, `back to ${JSON.stringify(initial)}`);
      }
    },
  },
  {
    id: "network.change-widens",
    level: "MUST",
    title: "give a box the network that was announced, when it is asked for",
    promise: "setNetwork: when it returns the new policy holds.",
    needs: [changesNetwork, networkMode("public"), networkMode("no-network")],
    prerequisites: ["network.reachable"],
    async run({ ownBox, network }) {
      const target = given(network.reachable);
      const box = await ownBox({ network: { initial: NONE, later: [PUBLIC] } });
      assert.notEqual(await dial(box, target), "reached");
      await box.setNetwork(PUBLIC);
      assert.equal(await dial(box, target), "reached");
      await assertAnswers(box);
    },
  },
  {
    id: "network.change-there-and-back",
    level: "MUST",
    title: "change the policy several times, each time in full",
    promise: "setNetwork: never half applied.",
    needs: [cutsConnections, networkMode("public"), networkMode("no-network")],
    prerequisites: ["network.reachable"],
    covers: ["B64"],
    async run({ ownBox, network }) {
      const target = given(network.reachable);
      const box = await ownBox({ network: { initial: PUBLIC, later: [NONE] } });
      for (let round = 0; round < 3; round += 1) {
        assert.equal(await dial(box, target), "reached", `round ${round}`);
        await box.setNetwork(NONE);
        assert.notEqual(await dial(box, target), "reached", `round ${round}`);
        await box.setNetwork(PUBLIC);
      }
    },
  },
  {
    id: "network.change-keeps-the-box",
    level: "MUST",
    title: "change the policy without disturbing what runs in the box",
    promise: "When setNetwork returns the policy holds; the box goes on.",
    needs: [cutsConnections, networkMode("public"), networkMode("no-network")],
    async run({ ownBox }) {
      const box = await ownBox({ network: { initial: PUBLIC, later: [NONE] } });
      const running = box.exec(["sh", "-c", "sleep 5; echo undisturbed"], { timeoutMs: 300_000 });
      running.catch(() => undefined);
      await startEchoServer(box, 8126);
      await box.setNetwork(NONE);
      assert.equal(await dial(box, { host: "127.0.0.1", port: 8126 }), "reached", "its own loopback is gone");
      await box.setNetwork(PUBLIC);
      await box.setNetwork(PUBLIC);
      assert.ok((await addressesOf(box)).length > 0, "the box has no address again");
      assert.equal(text((await running).stdout), "undisturbed\n");
      assert.equal(box.state, "running");
    },
  },
  {
    id: "network.change-announced",
    level: "MUST",
    title: "refuse a policy that the spec did not announce as a mistake, and change nothing",
    promise: "setNetwork: to a policy that the spec announced; another one is a TypeError.",
    async run({ ownBox, capabilities }) {
      const initial: NetworkPolicy = networkMode("no-network").claimed(capabilities) ? NONE : PUBLIC;
      const box = await ownBox({ network: { initial } });
      const before = await shell(box, "cat /proc/net/dev | cut -d: -f1; cat /proc/net/route");
      await mistake(() => box.setNetwork(initial === NONE ? PUBLIC : NONE));
      await mistake(() => box.setNetwork({ mode: "allowlist", hosts: ["example.com"] }));
      assert.equal(await shell(box, "cat /proc/net/dev | cut -d: -f1; cat /proc/net/route"), before);
      assert.equal(box.state, "running");
    },
  },
  {
    id: "network.change-state",
    level: "MUST",
    title: "reject a change before start and after teardown",
    promise: "ERR_BOX_STATE: the operation does not fit the box's state.",
    needs: [cutsConnections, networkMode("public"), networkMode("no-network")],
    async run({ newBox }) {
      const box = newBox({ network: { initial: PUBLIC, later: [NONE] } });
      await rejection(box.setNetwork(NONE), "ERR_BOX_STATE");
      await box.start();
      await box.teardownConfirmed();
      await rejection(box.setNetwork(NONE), "ERR_BOX_STATE");
    },
  },
  {
    id: "network.change-while-frozen",
    level: "SHOULD",
    title: "change the policy of a frozen box, or say that it cannot",
    promise: "When setNetwork returns the policy holds, or it rejects.",
    needs: [freezes, cutsConnections, networkMode("public"), networkMode("no-network")],
    prerequisites: ["network.reachable"],
    async run({ ownBox, network }) {
      const target = given(network.reachable);
      const box = await ownBox({ network: { initial: PUBLIC, later: [NONE] } });
      assert.equal(await dial(box, target), "reached");
      await box.freeze();
      const changed = await box.setNetwork(NONE).then(
        () => true,
        async (error: unknown) => {
          expectedError(error, "ERR_BOX_STATE");
          return false;
        },
      );
      await box.thaw();
      assert.equal((await dial(box, target)) === "reached", !changed);
    },
  },
];
