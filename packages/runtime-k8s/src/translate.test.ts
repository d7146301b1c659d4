import { parseRuntimeSpec } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";
import { parseOptions } from "./options.ts";
import { boxPod, literal } from "./translate.ts";

const image = { id: "sha256:1", entrypoint: [], workdir: "/app", user: "1000:1000", env: {} };
const identity = { name: "breakwater-1", role: "box", trial: "a/b", expiresAtMs: 1, network: "none" } as const;
const settings = parseOptions({ helperImage: "helper:1" }, {});

describe("boxPod", () => {
  const spec = parseRuntimeSpec({
    image: "an/image:1",
    cpus: 0.5,
    memoryMb: 256,
    storageMb: 1024,
    network: { initial: { mode: "no-network" } },
  });
  const { spec: pod, metadata } = boxPod(spec, image, identity, settings);
  const [container] = pod?.containers ?? [];

  it("asks for exactly what the box may have", () => {
    const limits = { cpu: "500m", memory: "256Mi", "ephemeral-storage": "1024Mi" };
    expect(container?.resources).toEqual({ limits, requests: limits });
  });

  it("has no limit of storage but the box's: the smallest would hold for the whole pod", () => {
    expect(pod?.initContainers?.[0]?.resources?.limits).not.toHaveProperty("ephemeral-storage");
  });

  it("gives the box no identity in the cluster and none of its names", () => {
    expect(pod).toMatchObject({
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      restartPolicy: "Never",
      dnsPolicy: "None",
      dnsConfig: { nameservers: ["127.0.0.1"] },
    });
  });

  it("lets the cluster forget no pod whose processes go on", () => {
    expect(pod?.terminationGracePeriodSeconds).toBeGreaterThan(0);
  });

  it("runs our hold as root whatever the image says, with a helper that the box cannot write", () => {
    expect(container?.command?.slice(0, 2)).toEqual(["/.breakwater/helper", "hold"]);
    expect(container?.args).toBeUndefined();
    expect(container?.securityContext).toMatchObject({ runAsUser: 0, capabilities: { drop: ["NET_RAW"] } });
    expect(container?.volumeMounts).toEqual([{ name: "helper", mountPath: "/.breakwater", readOnly: true }]);
  });

  it("keeps in annotations what labels cannot hold", () => {
    expect(metadata?.annotations?.["breakwater.trial"]).toBe("a/b");
    for (const value of Object.values(metadata?.labels ?? {})) expect(value).toMatch(/^[\w.-]{1,63}$/);
  });

  it("ends the pod a while after the box's lifetime, should our hold not", () => {
    expect(pod?.activeDeadlineSeconds).toBeGreaterThan(spec.lifetimeMs / 1000);
  });
});

it("takes arguments as they are, though the cluster replaces $(NAME)", () => {
  expect(literal("$(HOME) $$ $x")).toBe("$$(HOME) $$$$ $$x");
});
