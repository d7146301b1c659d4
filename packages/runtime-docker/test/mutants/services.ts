import { isRuntimeError, type RuntimeSpecInput, type ServiceSpec } from "@breakwater/runtime-api";
import { exited, type Mutant, onExec, withChanges } from "./mutant.ts";

const SUCCEEDED = /but it succeeded/;

/** A mutant that is asked for other services. */
function onServices(change: (service: ServiceSpec) => ServiceSpec): (asked: RuntimeSpecInput) => RuntimeSpecInput {
  return (asked) => (asked.services === undefined ? asked : { ...asked, services: asked.services.map(change) });
}

export const servicesMutants: readonly Mutant[] = [
  {
    id: "lifecycle.service",
    does: "does not run a service's program",
    says: /Connection refused/,
    spec: onServices((service) => ({ ...service, command: ["sleep", "100000"] })),
    also: {
      "lifecycle.service-order": "that takes the programs of services",
      "lifecycle.service-files": "that takes the programs of services",
      "lifecycle.service-lost": "that takes the programs of services",
    },
  },
  {
    id: "lifecycle.service-order",
    does: "starts all services at once",
    says: /strictly equal/,
    spec: onServices((service) => ({ ...service, dependsOn: undefined })),
  },
  {
    id: "lifecycle.service-unhealthy",
    does: "does not wait for a service's health",
    says: SUCCEEDED,
    spec: onServices((service) => ({ ...service, healthcheck: undefined, dependsOn: {} })),
    also: {
      "lifecycle.service-order": "what is ready is told by its health",
      "lifecycle.service-files": "what is ready is told by its health",
    },
  },
  {
    id: "lifecycle.service-files",
    does: "lets every box write to its volumes",
    says: /read-only was written to/,
    spec: onServices(({ volumes = [], ...service }) => ({
      ...service,
      volumes: volumes.map((volume) => ({ ...volume, readOnly: false })),
    })),
  },
  {
    id: "lifecycle.service-after-main",
    does: "reads the main box's files for those of a service",
    says: /strictly deep-equal/,
    box: (box) => ({
      service: (name) =>
        withChanges(box.service(name), {
          readBounded: (path, limits, options) => box.readBounded(path, limits, options),
        }),
    }),
  },
  {
    id: "lifecycle.service-network",
    does: "gives every service a network of its own",
    says: /more than loopback/,
    spec: onServices((service) => ({ ...service, networks: ["default"] })),
    also: { "lifecycle.service": "the main box reaches none of them" },
  },
  {
    id: "lifecycle.service-lost",
    does: "takes a program whose service was ended from outside for a success",
    says: SUCCEEDED,
    box: onExec(async (run) => {
      try {
        return await run();
      } catch (error) {
        if (isRuntimeError(error, "ERR_NETWORK_LOST")) return exited(0);
        throw error;
      }
    }),
  },
  {
    id: "leaks.sweep-services",
    does: "only says what it has removed",
    says: /strictly deep-equal/,
    driver: (real) => ({ sweep: (options) => real.sweep({ ...options, dryRun: true }) }),
    also: { "leaks.sweep-dead-owner": "nothing is swept" },
  },
];
