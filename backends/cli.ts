/**
 * `node --conditions=@breakwater/source backends/cli.ts NAME up|down|status|env`: stands up what tests need.
 */
import * as bubblewrap from "./bubblewrap/backend.ts";
import * as docker from "./docker/backend.ts";
import * as newerEngines from "./engines/backend.ts";
import * as kubernetes from "./kubernetes/backend.ts";
import * as network from "./network/backend.ts";
import * as podman from "./podman/backend.ts";
import * as prime from "./prime/backend.ts";
import * as primeService from "./prime/service.ts";
import { BackendError } from "./src/errors.ts";
import { printedSteps, type Steps } from "./src/steps.ts";

interface Backend {
  up(steps: Steps): Promise<unknown>;
  down(steps: Steps): Promise<void>;
  /** Lines for people; an empty list when it does not run. */
  status(): Promise<readonly string[]>;
  env(): Promise<unknown>;
  /** Runs a program in the backend's network; gives back its exit code. */
  run?(argv: readonly [string, ...string[]]): Promise<number>;
}

const backends: Readonly<Record<string, Backend>> = {
  docker: {
    ...docker,
    async status(): Promise<readonly string[]> {
      const engine = await docker.status();
      return engine === undefined ? [] : [`${engine.version}${engine.isPrivate ? " (private)" : ""}`, engine.host];
    },
  },
  network: {
    ...network,
    async status(): Promise<readonly string[]> {
      const engine = await network.status();
      return engine === undefined ? [] : [`${engine.version} with a fake internet`, engine.host];
    },
    run: (argv) => network.runAttached(argv),
  },
  bubblewrap,
  prime,
  "prime-service": primeService,
  podman: sealedEngine(podman, "podman"),
  "podman-rootless": sealedEngine(podman, "podman-rootless"),
  "docker-26": sealedEngine(newerEngines, "docker-26"),
  "docker-28": sealedEngine(newerEngines, "docker-28"),
  kubernetes: cluster("kubernetes"),
  "kubernetes-open": cluster("kubernetes-open"),
};

/** The engines that a module can seal off with the fake internet. */
interface SealedEngines<Name> {
  up(name: Name, steps: Steps): Promise<unknown>;
  down(name: Name, steps: Steps): Promise<void>;
  status(name: Name): Promise<{ readonly host: string; readonly version: string } | undefined>;
  env(name: Name): Promise<unknown>;
  runAttached(name: Name, argv: readonly [string, ...string[]]): Promise<number>;
}

function sealedEngine<Name>(engines: SealedEngines<Name>, name: Name): Backend {
  return {
    up: (steps) => engines.up(name, steps),
    down: (steps) => engines.down(name, steps),
    env: () => engines.env(name),
    run: (argv) => engines.runAttached(name, argv),
    async status(): Promise<readonly string[]> {
      const engine = await engines.status(name);
      return engine === undefined ? [] : [`${engine.version} with a fake internet`, engine.host];
    },
  };
}

function cluster(name: kubernetes.ClusterName): Backend {
  return {
    up: (steps) => kubernetes.up(name, steps),
    down: (steps) => kubernetes.down(name, steps),
    status: () => kubernetes.status(name),
    env: () => kubernetes.env(name),
    run: (argv) => kubernetes.runInside(name, argv),
  };
}

const usage = `usage: npm run backends -- <${Object.keys(backends).join("|")}> up|down|status|env

  up      install, start and prepare what is missing; prints one line per step
  down    end what up has started and remove its state (not the cache folder)
  status  what is running, and where; exit code 3 when it is not
  env     environment variables for tests, as JSON

NAME run PROGRAM ARGUMENTS...  runs a program with a sealed engine's environment, in the network of its host (of a cluster's node)

example: npm run backends -- docker up`;

async function main(args: readonly string[]): Promise<number> {
  const [name = "", verb = "", ...rest] = args;
  if (name === "--help" || name === "-h") {
    process.stdout.write(`${usage}\n`);
    return 0;
  }
  const backend = Object.hasOwn(backends, name) ? backends[name] : undefined;
  const [program, ...programArguments] = rest;
  if (verb === "run" && backend?.run !== undefined && program !== undefined) {
    Object.assign(process.env, await backend.env());
    return await backend.run([program, ...programArguments]);
  }
  if (backend === undefined || rest.length > 0) throw new BackendError("USAGE", usage);
  switch (verb) {
    case "up":
      await backend.up(printedSteps());
      return 0;
    case "down":
      await backend.down(printedSteps());
      return 0;
    case "status": {
      const lines = await backend.status();
      process.stdout.write(`${(lines.length > 0 ? lines : [`${name} is not running`]).join("\n")}\n`);
      return lines.length > 0 ? 0 : 3;
    }
    case "env":
      process.stdout.write(`${JSON.stringify(await backend.env(), undefined, 2)}\n`);
      return 0;
    default:
      throw new BackendError("USAGE", usage);
  }
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof BackendError)) throw error;
  process.stderr.write(
    `${error.code === "USAGE" ? "" : `${error.code}: `}${error.message}\n${error.advice === undefined ? "" : `→ ${error.advice}\n`}`,
  );
  process.exitCode = error.code === "USAGE" ? 2 : 1;
}
