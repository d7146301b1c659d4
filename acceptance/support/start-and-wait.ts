/** Starts a box with an allowlist, prints its id and waits: the owner that is killed. */
import { dockerDriver } from "@breakwater/runtime-docker";
import { image } from "./backend.ts";

const box = dockerDriver().create({
  image,
  network: { initial: { mode: "allowlist", hosts: ["example.com"] } },
  trial: "network-faults",
});
await box.start();
process.stdout.write(`${box.id}\n`);
setInterval(() => undefined, 60_000);
