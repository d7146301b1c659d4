import { isAbsolutePath, isServiceName, isUser, MAIN_SERVICE, type VolumeMount } from "@breakwater/runtime-api";

import type { ComposeSource } from "./compose-file.ts";
import { expand, parseDurationMs, splitWords } from "./compose-values.ts";
import { formatKey, lineOfKey } from "./key-lines.ts";
import type { PlannedImage, PlannedService } from "./plan.ts";
import type { TasksetProblem } from "./problems.ts";
import type { TaskHealthcheck } from "./task.ts";

/** What a compose file comes to. */
export interface ComposePlan {
  readonly main: ComposeMain;
  /** In the order of the file, without the main one. */
  readonly services: readonly PlannedService[];
  readonly problems: readonly TasksetProblem[];
  readonly warnings: readonly TasksetProblem[];
  /** Variables that it asks for. */
  readonly used: readonly string[];
}

/** What the file says of the main box. */
export interface ComposeMain {
  /** `null`: what the task says elsewhere. */
  readonly image: PlannedImage | null;
  readonly env: Readonly<Record<string, string>>;
  readonly workdir: string | null;
  readonly volumes: readonly VolumeMount[];
  readonly dependsOn: DependsOn;
  readonly healthcheck: TaskHealthcheck | null;
}

export interface ComposeContext {
  /** Where `${NAME}` comes from: the host's variables, the task's over them. */
  readonly variables: Readonly<Record<string, string | undefined>>;
  /** No phase of the box has a restricted network. */
  readonly isPublic: boolean;
  /** Some phase has an allowlist. */
  readonly hasAllowlist: boolean;
  /** Of images that are built. */
  readonly imageName: (service: string) => string;
}

type DependsOn = NonNullable<PlannedService["spec"]["dependsOn"]>;
type Condition = DependsOn[string];
type Healthcheck = NonNullable<PlannedService["spec"]["healthcheck"]>;
type Table = Readonly<Record<string, unknown>>;

const MAX_SERVICES = 50;

const IGNORED_AT_TOP = new Set(["version", "name"]);
/** Change nothing here: our hold is every box's first process, boxes are not started again, and nobody else sees their names. */
const IGNORED = new Set(["container_name", "init", "labels", "logging", "pull_policy", "restart", "stdin_open"]);
const IGNORED_TOO = new Set(["stop_grace_period", "stop_signal", "tty"]);
/** In `task.toml`, for the main box. */
const LIMITS = new Set(["cpus", "deploy", "mem_limit"]);

/** What an allowlist's forwarder listens on. */
const FORWARDER_PORTS = new Set([53, 80, 443, 3128]);

/** Stand for what Harbor calls its folders and images; a file may name them where we know what is meant. */
const HARBOR_FOLDERS = {
  "/.harbor/agent": "/logs/agent",
  "/.harbor/artifacts": "/logs/artifacts",
  "/.harbor/verifier": "/logs/verifier",
} as const;
/** The main box's image, in another service. */
export const HARBORS_IMAGE = "harbor-main";
/** `/logs/artifacts` of the main box, where another service mounts Harbor's folder of artifacts. */
export const ARTIFACTS_VOLUME = "harbor-artifacts";
const HARBORS: Readonly<Record<string, string>> = {
  MAIN_IMAGE_NAME: HARBORS_IMAGE,
  PREBUILT_IMAGE_NAME: HARBORS_IMAGE,
  HOST_AGENT_LOGS_PATH: "/.harbor/agent",
  HOST_ARTIFACTS_PATH: "/.harbor/artifacts",
  HOST_VERIFIER_LOGS_PATH: "/.harbor/verifier",
  ENV_AGENT_LOGS_PATH: "/logs/agent",
  ENV_ARTIFACTS_PATH: "/logs/artifacts",
  ENV_VERIFIER_LOGS_PATH: "/logs/verifier",
  // For limits only, which task.toml has.
  CPUS: "1",
  MEMORY: "1G",
};

/** Reads a compose file as far as tasks use it; everything else is a problem at its key. Pure. */
export function planCompose(source: ComposeSource, context: ComposeContext): ComposePlan {
  return new ComposeReader(source, context).read();
}

/** One service of the file, half understood. */
interface Draft {
  readonly name: string;
  readonly image: PlannedImage | null;
  readonly spec: PlannedService["spec"];
  readonly ports: readonly { readonly port: number; readonly key: readonly PropertyKey[] }[];
}

class ComposeReader {
  readonly #source: ComposeSource;
  readonly #context: ComposeContext;
  readonly #problems: TasksetProblem[] = [];
  readonly #warnings: TasksetProblem[] = [];
  readonly #volumes = new Set<string>();
  readonly #networks = new Set(["default"]);
  readonly #used = new Set<string>();
  #sharesArtifacts = false;

  constructor(source: ComposeSource, context: ComposeContext) {
    this.#source = source;
    this.#context = context;
  }

  read(): ComposePlan {
    const root = this.#table(this.#source.document, []);
    const { services = {}, volumes = {}, networks = {}, ...others } = root;
    for (const key of Object.keys(others)) {
      if (!IGNORED_AT_TOP.has(key) && !key.startsWith("x-")) this.#refuseKey([key]);
    }
    this.#readNames("volumes", volumes, this.#volumes, ["name", "labels"], { driver: "local" });
    this.#readNames("networks", networks, this.#networks, ["name", "labels"], { driver: "bridge" });

    const tables = this.#table(services, ["services"]);
    const names = Object.keys(tables).slice(0, MAX_SERVICES);
    if (names.length < Object.keys(tables).length)
      this.#refuse(["services"], `are more than ${MAX_SERVICES}`, "take out what the task does not need");
    const mainTable = this.#table(tables[MAIN_SERVICE] ?? {}, ["services", MAIN_SERVICE]);
    const mainNetworks = this.#networksOf(mainTable, ["services", MAIN_SERVICE]);
    const main = this.#readService(MAIN_SERVICE, mainTable, names, mainNetworks);
    const drafts = names
      .filter((name) => name !== MAIN_SERVICE)
      .map((name) => this.#readService(name, this.#table(tables[name], ["services", name]), names, mainNetworks));
    this.#checkPorts([main, ...drafts.filter(({ spec }) => (spec.networks ?? []).length === 0)]);
    this.#checkHealth(main, drafts);
    return {
      main: this.#mainOf(main, mainTable),
      services: drafts.flatMap(({ image, spec }) => (image === null ? [] : [{ image, spec }])),
      problems: this.#problems,
      warnings: this.#warnings,
      used: [...this.#used],
    };
  }

  // One service.

  #readService(name: string, table: Table, names: readonly string[], mainNetworks: readonly string[] | null): Draft {
    const at = (...rest: readonly PropertyKey[]): readonly PropertyKey[] => ["services", name, ...rest];
    const isMain = name === MAIN_SERVICE;
    if (!isServiceName(name)) this.#refuse(at(), "is no name of a service", "use letters, digits, _, . and -");
    const spec: { -readonly [Key in keyof PlannedService["spec"]]: PlannedService["spec"][Key] } = { name };
    const ports: Draft["ports"][number][] = [];
    const env = { ...this.#envFiles(table["env_file"], at("env_file")) };
    for (const [key, value] of Object.entries(table)) {
      switch (key) {
        case "image":
        case "build":
        case "env_file":
        case "networks":
          break;
        case "command":
        case "entrypoint": {
          const argv = this.#argv(value, at(key));
          if (argv === null) break;
          if (!isMain) spec[key] = argv;
          else if (key === "entrypoint" || !isKeepAlive(argv))
            this.#refuse(
              at(key),
              "the main box is kept alive by us",
              "start it by the image's ENTRYPOINT, which is kept",
            );
          break;
        }
        case "environment":
          Object.assign(env, this.#environment(value, at(key)));
          break;
        case "working_dir": {
          const path = this.#text(value, at(key));
          if (isAbsolutePath(path)) spec.workdir = path;
          else this.#refuse(at(key), "is not an absolute path", "write one");
          break;
        }
        case "user": {
          const user = typeof value === "number" ? String(value) : this.#text(value, at(key));
          if (isMain) this.#refuse(at(key), "the users of the main box are in task.toml", "set [agent].user");
          else if (isUser(user)) spec.user = user;
          else this.#refuse(at(key), "is no user", 'write a name, an id, or "user:group"');
          break;
        }
        case "depends_on":
          spec.dependsOn = this.#dependsOn(value, names, at(key));
          break;
        case "healthcheck": {
          const check = this.#healthcheck(value, at(key));
          if (check !== null) spec.healthcheck = check;
          break;
        }
        case "ports":
          this.#warn(at(key), "nothing of the host is opened; other boxes reach the service anyway", "leave it out");
          ports.push(...this.#ports(value, at(key)));
          break;
        case "expose":
          ports.push(...this.#ports(value, at(key)));
          break;
        case "volumes":
          Object.assign(spec, this.#mounts(name, value, at(key)));
          break;
        case "hostname":
          if (value !== name) this.#refuse(at(key), "boxes are known by the names of services", "leave it out");
          break;
        default:
          if (isMain && LIMITS.has(key)) this.#warn(at(key), "is ignored: task.toml has the limits", "leave it out");
          else if (!IGNORED.has(key) && !IGNORED_TOO.has(key) && !key.startsWith("x-")) this.#refuseKey(at(key));
      }
    }
    if (Object.keys(env).length > 0) spec.env = env;
    if (!isMain) Object.assign(spec, this.#placeInNetworks(table, mainNetworks, at("networks")));
    const image = this.#image(name, table, at());
    if (image === null && !isMain && this.#problems.length === 0)
      this.#refuse(at(), "has neither image nor build", "name its image");
    return { name, image, spec, ports };
  }

  #mainOf({ image, spec }: Draft, table: Table): ComposeMain {
    const at = ["services", MAIN_SERVICE];
    if ((spec.copies ?? []).length > 0)
      this.#refuse(
        [...at, "volumes"],
        "folders of the task are not mounted into the main box",
        "COPY them in its Dockerfile",
      );
    const volumes = [...(spec.volumes ?? [])];
    if (this.#sharesArtifacts)
      volumes.push({ volume: ARTIFACTS_VOLUME, path: HARBOR_FOLDERS["/.harbor/artifacts"], readOnly: false });
    const check = spec.healthcheck;
    return {
      image:
        table["build"] === undefined && image?.kind === "declared" && image.reference === HARBORS_IMAGE ? null : image,
      env: spec.env ?? {},
      workdir: spec.workdir ?? null,
      volumes,
      dependsOn: spec.dependsOn ?? {},
      healthcheck:
        check === undefined
          ? null
          : {
              command: check.argv.map(quote).join(" "),
              intervalMs: check.intervalMs,
              timeoutMs: check.timeoutMs,
              startPeriodMs: check.startPeriodMs,
              startIntervalMs: check.intervalMs,
              retries: check.retries,
            },
    };
  }

  // Images.

  #image(service: string, table: Table, at: readonly PropertyKey[]): PlannedImage | null {
    const { build, image } = table;
    if (build === undefined) {
      return image === undefined ? null : { kind: "declared", reference: this.#text(image, [...at, "image"]) };
    }
    const {
      context = ".",
      dockerfile = "Dockerfile",
      ...others
    } = typeof build === "string" ? { context: build } : this.#table(build, [...at, "build"]);
    for (const key of Object.keys(others)) this.#refuseKey([...at, "build", key]);
    const place = this.#path(context, [...at, "build", "context"]);
    const file = this.#text(dockerfile, [...at, "build", "dockerfile"]);
    if (place === null) return null;
    return {
      kind: "build",
      context: place.hostPath,
      ...(file === "Dockerfile" ? {} : { dockerfile: file }),
      name: this.#context.imageName(service),
    };
  }

  // Networks.

  /** As written, without `default` alone, which is what a service has that says nothing; `null` = nothing is written. */
  #networksOf(table: Table, at: readonly PropertyKey[]): readonly string[] | null {
    const { networks } = table;
    if (networks === undefined) return null;
    const names = Array.isArray(networks)
      ? networks.map(String)
      : Object.keys(this.#table(networks, [...at, "networks"]));
    if (!Array.isArray(networks)) {
      for (const [name, options] of Object.entries(this.#table(networks, [...at, "networks"])))
        if (options !== null)
          this.#refuse([...at, "networks", name], "options are not supported here", "write the name only");
    }
    for (const [index, name] of names.entries()) {
      const key = Array.isArray(networks) ? index : name;
      if (!this.#networks.has(name))
        this.#refuse([...at, "networks", key], `${JSON.stringify(name)} is not defined`, "define it at the top");
    }
    if (at[1] === MAIN_SERVICE && !this.#context.isPublic && names.length > 0) {
      this.#refuse(
        [...at, "networks"],
        "the main box's network is what network_mode says, and it is restricted",
        "leave networks out; boxes reach each other without it",
      );
    }
    return names;
  }

  /** A service that is where the main box is shares its network; one that is elsewhere is on its own. Both at once cannot be had. */
  #placeInNetworks(
    table: Table,
    mainNetworks: readonly string[] | null,
    key: readonly PropertyKey[],
  ): { readonly networks?: readonly string[] } {
    const own = this.#networksOf(table, key.slice(0, 2));
    const ofMain = new Set(mainNetworks ?? ["default"]);
    if (own === null) {
      if (ofMain.has("default")) return {};
      return { networks: ["default"] };
    }
    if (!this.#context.isPublic) return own.length === 0 ? {} : { networks: own };
    const shared = own.filter((name) => ofMain.has(name));
    if (shared.length === own.length && shared.length === ofMain.size) return {};
    if (shared.length > 0) {
      this.#refuse(
        key,
        `shares ${shared.join(", ")} with the main box, and not all others`,
        "give it the main box's networks, or none of them",
      );
    }
    return { networks: own };
  }

  #readNames(
    list: "volumes" | "networks",
    value: unknown,
    names: Set<string>,
    ignored: readonly string[],
    defaults: Readonly<Record<string, string>>,
  ): void {
    for (const [name, options] of Object.entries(this.#table(value ?? {}, [list]))) {
      names.add(name);
      if (!isServiceName(name)) this.#refuse([list, name], "is no name", "use letters, digits, _, . and -");
      for (const [key, option] of Object.entries(this.#table(options ?? {}, [list, name]))) {
        if (!ignored.includes(key) && option !== false && defaults[key] !== option) this.#refuseKey([list, name, key]);
      }
    }
  }

  /** Who shares a network shares its ports. */
  #checkPorts(drafts: readonly Draft[]): void {
    const taken = new Map<number, string>();
    for (const { name, ports } of drafts) {
      for (const { port, key } of ports) {
        const other = taken.get(port);
        if (other !== undefined && other !== name)
          this.#refuse(
            key,
            `${other} has the port ${port}; boxes that share a network share its ports`,
            "use another port",
          );
        if (this.#context.hasAllowlist && FORWARDER_PORTS.has(port))
          this.#refuse(key, `the port ${port} is what an allowlist needs on the boxes' loopback`, "use another port");
        taken.set(port, name);
      }
    }
  }

  #ports(value: unknown, at: readonly PropertyKey[]): readonly Draft["ports"][number][] {
    if (!Array.isArray(value)) {
      this.#refuse(at, "is not a list", "write a list of ports");
      return [];
    }
    return value.flatMap((entry: unknown, index) => {
      const key = [...at, index];
      const written: unknown = isTable(entry) ? entry["target"] : entry;
      const text = typeof written === "number" ? String(written) : this.#text(written, key);
      const container = /(?:^|:)(\d+)(?:-\d+)?(?:\/(?:tcp|udp))?$/.exec(text)?.[1];
      if (container === undefined) this.#refuse(key, "is no port", "write its number");
      return container === undefined ? [] : [{ port: Number(container), key }];
    });
  }

  // Order and health.

  #dependsOn(value: unknown, names: readonly string[], at: readonly PropertyKey[]): DependsOn {
    const conditions: Record<string, Condition> = {
      service_started: "started",
      service_healthy: "healthy",
      service_completed_successfully: "completed",
    };
    const found: Record<string, Condition> = {};
    const wanted = Array.isArray(value)
      ? Object.fromEntries(value.map((name) => [String(name), {}]))
      : this.#table(value, at);
    for (const [name, options] of Object.entries(wanted)) {
      const key = [...at, Array.isArray(value) ? value.indexOf(name) : name];
      const { condition = "service_started", restart: _, required = true, ...others } = this.#table(options, key);
      for (const other of Object.keys(others)) this.#refuseKey([...key, other]);
      const known = conditions[String(condition)];
      if (known === undefined)
        this.#refuse([...key, "condition"], "is no condition", `use one of ${Object.keys(conditions).join(", ")}`);
      else if (!names.includes(name) && name !== MAIN_SERVICE && required !== false)
        this.#refuse(key, `there is no service ${JSON.stringify(name)}`, "name one of the file");
      else if (name === MAIN_SERVICE && known !== "started")
        this.#refuse([...key, "condition"], "of the main box only its start can be waited for", "use service_started");
      else if (names.includes(name) || name === MAIN_SERVICE) found[name] = known;
    }
    return found;
  }

  #checkHealth(main: Draft, drafts: readonly Draft[]): void {
    const byName = new Map([main, ...drafts].map((draft) => [draft.name, draft]));
    for (const { name, spec } of byName.values()) {
      for (const [other, condition] of Object.entries(spec.dependsOn ?? {})) {
        if (condition !== "healthy" || byName.get(other)?.spec.healthcheck !== undefined) continue;
        const key = ["services", name, "depends_on", other, "condition"];
        this.#refuse(key, `${other} has no healthcheck in the file`, "write one; an image's own does not count");
      }
      const circle = findCircle(name, byName);
      if (circle !== null)
        this.#refuse(["services", name, "depends_on"], `${circle.join(" depends on ")}`, "take one of them out");
    }
  }

  #healthcheck(value: unknown, at: readonly PropertyKey[]): Healthcheck | null {
    const {
      test,
      interval,
      timeout,
      retries = 3,
      start_period,
      start_interval: _,
      disable = false,
      ...others
    } = this.#table(value, at);
    for (const key of Object.keys(others)) this.#refuseKey([...at, key]);
    if (disable === true || (Array.isArray(test) && test[0] === "NONE")) return null;
    const duration = (key: string, written: unknown, fallback: number): number => {
      const ms = written === undefined ? fallback : parseDurationMs(written);
      if (ms === null) this.#refuse([...at, key], "is no duration", 'write one, for instance "5s"');
      return ms ?? fallback;
    };
    const words = Array.isArray(test) ? test.map((word, index) => this.#text(word, [...at, "test", index])) : [];
    const [kind, ...rest] = Array.isArray(test) ? words : ["CMD-SHELL", this.#text(test, [...at, "test"])];
    if (!(Number.isSafeInteger(retries) && Number(retries) > 0))
      this.#refuse([...at, "retries"], "is not a number above 0", "write one");
    const times = {
      intervalMs: duration("interval", interval, 30_000),
      timeoutMs: duration("timeout", timeout, 30_000),
      startPeriodMs: duration("start_period", start_period, 0),
      retries: Number(retries),
    };
    if ((kind !== "CMD" && kind !== "CMD-SHELL") || rest.length === 0) {
      this.#refuse([...at, "test"], "is no test", 'write a command, or ["CMD", …]');
      return null;
    }
    return { argv: kind === "CMD" ? rest : ["/bin/sh", "-c", ...rest], ...times };
  }

  // Variables, words, mounts.

  #environment(value: unknown, at: readonly PropertyKey[]): Record<string, string> {
    const env: Record<string, string> = {};
    const set = (name: string, written: unknown, key: readonly PropertyKey[]): void => {
      if (name === "" || name.includes("\0")) return this.#refuse(key, "is no variable", "write NAME=value");
      if (written === null || written === undefined) {
        // As in a shell: handed on if it is set.
        const found = this.#context.variables[name];
        if (found === undefined) return;
        env[name] = found;
        this.#used.add(name);
      } else if (typeof written === "object") this.#refuse(key, "is no text", "write one");
      else env[name] = typeof written === "string" ? this.#text(written, key) : String(written as number);
    };
    if (Array.isArray(value)) {
      for (const [index, entry] of value.entries()) {
        const text = this.#text(entry, [...at, index]);
        const end = text.indexOf("=");
        if (end < 0) set(text, null, [...at, index]);
        else env[text.slice(0, end)] = text.slice(end + 1);
      }
    } else {
      for (const [name, written] of Object.entries(this.#table(value, at))) set(name, written, [...at, name]);
    }
    return env;
  }

  #envFiles(value: unknown, at: readonly PropertyKey[]): Readonly<Record<string, string>> {
    const env: Record<string, string> = {};
    for (const [index, entry] of (value === undefined ? [] : [value].flat()).entries()) {
      const key = Array.isArray(value) ? [...at, index] : at;
      const {
        path,
        required = true,
        ...others
      } = typeof entry === "string" ? { path: entry } : this.#table(entry, key);
      for (const other of Object.keys(others)) this.#refuseKey([...key, other]);
      const content = typeof path === "string" ? this.#source.envFiles[path] : undefined;
      if (content !== undefined) Object.assign(env, content);
      else if (required !== false) this.#refuse(key, "is no file of the task", "name a file beside the compose file");
    }
    return env;
  }

  #argv(value: unknown, at: readonly PropertyKey[]): readonly string[] | null {
    if (value === null || value === undefined) return null;
    if (Array.isArray(value)) return value.map((word, index) => this.#text(word, [...at, index]));
    const words = splitWords(this.#text(value, at));
    if (words === null) this.#refuse(at, "has a quote without its end", "write a list of words");
    return words;
  }

  #mounts(
    service: string,
    value: unknown,
    at: readonly PropertyKey[],
  ): Pick<PlannedService["spec"], "volumes" | "copies"> {
    const volumes: VolumeMount[] = [];
    const copies: { source: string; path: string }[] = [];
    if (!Array.isArray(value)) this.#refuse(at, "is not a list", "write a list of mounts");
    for (const [index, entry] of (Array.isArray(value) ? value : []).entries()) {
      const key = [...at, index];
      const mount = this.#mount(entry, key);
      if (mount === null) continue;
      const { source, target, readOnly } = mount;
      const folder = Object.hasOwn(HARBOR_FOLDERS, source)
        ? HARBOR_FOLDERS[source as keyof typeof HARBOR_FOLDERS]
        : null;
      if (!isAbsolutePath(target) || target === "/") this.#refuse(key, "its target is no absolute path", "write one");
      else if (source === "") volumes.push({ volume: `anonymous-${service}-${index}`, path: target, readOnly });
      else if (folder !== null && service === MAIN_SERVICE) {
        if (folder !== target) this.#refuse(key, `Harbor's ${folder} is there already`, "leave it out");
      } else if (folder === "/logs/artifacts") {
        this.#sharesArtifacts = true;
        volumes.push({ volume: ARTIFACTS_VOLUME, path: target, readOnly });
      } else if (folder !== null)
        this.#refuse(
          key,
          `${folder} belongs to the main box`,
          "hand things over by a volume, or as artifacts of the service",
        );
      else if (isServiceName(source)) {
        if (this.#volumes.has(source)) volumes.push({ volume: source, path: target, readOnly });
        else this.#refuse(key, `the volume ${JSON.stringify(source)} is not defined`, "define it at the top");
      } else {
        const place = this.#path(source, key);
        if (place !== null && !readOnly)
          this.#refuse(key, "a folder of the task is never written to", 'add ":ro"; the service gets a copy');
        else if (place !== null) copies.push({ source: place.hostPath, path: target });
      }
    }
    return { ...(volumes.length === 0 ? {} : { volumes }), ...(copies.length === 0 ? {} : { copies }) };
  }

  #mount(
    entry: unknown,
    key: readonly PropertyKey[],
  ): { readonly source: string; readonly target: string; readonly readOnly: boolean } | null {
    if (isTable(entry)) {
      const { type, source = "", target, read_only: readOnly = false, ...others } = entry;
      for (const other of Object.keys(others)) this.#refuseKey([...key, other]);
      if (type !== "volume" && type !== "bind")
        this.#refuse([...key, "type"], "is not supported", "use volume or bind");
      const written =
        source === "" ? "" : this.#source.paths[String(source)] ? String(source) : this.#text(source, key);
      return { source: written, target: this.#text(target, [...key, "target"]), readOnly: readOnly === true };
    }
    if (typeof entry !== "string") {
      this.#refuse(key, "is no mount", "write source:target");
      return null;
    }
    // A source with a variable of Harbor's is looked up as it is written.
    const raw = entry.split(":")[0] ?? "";
    const known = entry.includes(":") && this.#source.paths[raw] !== undefined && raw.includes("$");
    const text = known ? this.#text(entry.slice(raw.length), key) : this.#text(entry, key);
    const [source = "", target, mode = "rw", ...rest] = (known ? `-${text}` : text).split(":");
    if (target === undefined) return { source: "", target: source, readOnly: false };
    const options = mode.split(",");
    if (rest.length > 0 || !options.every((one) => ["ro", "rw", "z", "Z"].includes(one)))
      this.#refuse(key, "has options that are not supported", 'use "ro" or none');
    return { source: known ? raw : source, target, readOnly: options.includes("ro") };
  }

  #path(written: unknown, key: readonly PropertyKey[]): { readonly hostPath: string } | null {
    const place = typeof written === "string" ? this.#source.paths[written] : undefined;
    if (place === undefined)
      this.#refuse(
        key,
        `${JSON.stringify(written)} is no path of the task`,
        "name a file or folder of the task, without variables",
      );
    return place ?? null;
  }

  /** With its variables filled in. */
  #text(value: unknown, key: readonly PropertyKey[]): string {
    if (typeof value !== "string" && typeof value !== "number") {
      this.#refuse(key, "is no text", "write one");
      return "";
    }
    const variables = { ...this.#context.variables, ...HARBORS, CONTEXT_DIR: this.#source.hostFolder };
    const { text, missing, invalid, used } = expand(String(value), variables);
    for (const variable of used) if (!Object.hasOwn(HARBORS, variable)) this.#used.add(variable);
    for (const variable of missing) {
      const advice = `set ${variable}, or give it a default: \${${variable}:-value}`;
      this.#refuse(key, `needs the variable ${variable}, which is not set`, advice);
    }
    if (invalid) this.#refuse(key, "has a $ that begins no variable", "write $$ for a $");
    return text;
  }

  #table(value: unknown, key: readonly PropertyKey[]): Table {
    if (isTable(value)) return value;
    this.#refuse(key, "is not a table", "write one");
    return {};
  }

  #refuseKey(key: readonly PropertyKey[]): void {
    this.#refuse(key, "is not supported", "leave it out");
  }

  #refuse(key: readonly PropertyKey[], message: string, advice: string): void {
    this.#problems.push(this.#problem(key, message, advice));
  }

  #warn(key: readonly PropertyKey[], message: string, advice: string): void {
    this.#warnings.push(this.#problem(key, message, advice));
  }

  #problem(path: readonly PropertyKey[], message: string, advice: string): TasksetProblem {
    const key = formatKey(path);
    const line = lineOfKey(this.#source.lines, key);
    return {
      file: this.#source.file,
      key: key === "" ? null : key,
      ...(line === undefined ? {} : { line }),
      message,
      advice,
    };
  }
}

function isTable(value: unknown): value is Table {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What tasks write so that a container goes on: ours does. */
function isKeepAlive(argv: readonly string[]): boolean {
  const [shell, flag, script] = argv;
  const words = /^(?:\/bin\/)?(?:ba)?sh$/.test(shell ?? "") && flag === "-c" ? script : argv.join(" ");
  return /^(?:exec )?(?:sleep infinity|tail -f \/dev\/null)$/.test((words ?? "").trim());
}

function findCircle(name: string, byName: ReadonlyMap<string, Draft>): readonly string[] | null {
  const walk = (at: string, way: readonly string[]): readonly string[] | null => {
    if (way.includes(at)) return at === name ? [...way, at] : null;
    for (const other of Object.keys(byName.get(at)?.spec.dependsOn ?? {})) {
      const circle = walk(other, [...way, at]);
      if (circle !== null) return circle;
    }
    return null;
  };
  return walk(name, []);
}

function quote(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}
