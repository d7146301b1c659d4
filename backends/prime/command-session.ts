import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, createContextKey, createContextValues, type HandlerContext } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { type Program, signal } from "./box.ts";
import {
  CommandSession,
  type CommandSessionEvent,
  CommandSessionEventSchema,
  type CommandSpec,
  ConnectResponseSchema,
  ListResponseSchema,
  type Selector,
  SendInputResponseSchema,
  SendSignalResponseSchema,
  Signal,
  StartResponseSchema,
} from "./command-session-pb.ts";
import { type Emulator, streamFault } from "./emulator.ts";
import type { StreamFault } from "./faults.ts";
import type { Sandbox } from "./sandboxes.ts";

interface Caller {
  readonly sandbox: Sandbox;
  readonly fault: StreamFault | undefined;
  /** Ends the connection in the middle of what is being said. */
  readonly cut: () => void;
}

const callerKey = createContextKey<Caller | undefined>(undefined);

/** What one session has written since it began is not kept: who listens gets what comes from then on, and its end. */
interface Session {
  readonly pid: number;
  readonly tag: string | undefined;
  readonly uuid: string | undefined;
  readonly command: CommandSpec;
  readonly program: Program;
  readonly listeners: Set<(event: CommandSessionEvent) => Promise<void>>;
  end: CommandSessionEvent | null;
  /** The box went away: nobody knows how the program ended. */
  isLost: boolean;
}

/** Programs of VM sandboxes, over Connect: server streams and unary calls, binary and JSON. */
export function commandSession(
  app: FastifyInstance,
  emulator: Emulator,
  prefix: string,
  sandboxOf: (request: FastifyRequest) => Sandbox | undefined,
): void {
  const sessions = new WeakMap<Sandbox, Map<number, Session>>();
  const requests = new WeakMap<object, Caller>();
  const sessionsOf = (sandbox: Sandbox): Map<number, Session> => {
    const known = sessions.get(sandbox) ?? new Map<number, Session>();
    sessions.set(sandbox, known);
    return known;
  };
  const callerOf = (context: HandlerContext): Caller => {
    const caller = context.values.get(callerKey);
    if (caller === undefined) throw new ConnectError("sandbox not found", Code.NotFound);
    return caller;
  };
  const find = (sandbox: Sandbox, selector: Selector | undefined): Session => {
    const { case: by, value } = selector?.selector ?? { case: undefined, value: undefined };
    const found = [...sessionsOf(sandbox).values()].find((session) =>
      by === "pid" ? session.pid === value : by === "tag" ? session.tag === value : session.uuid === value,
    );
    if (by === undefined || found === undefined) throw new ConnectError("session not found", Code.NotFound);
    return found;
  };

  const handler = connectNodeAdapter({
    grpc: false,
    grpcWeb: false,
    connect: true,
    contextValues: (request) => createContextValues().set(callerKey, requests.get(request)),
    routes: (router) => {
      router.service(CommandSession, {
        list: (_request, context) =>
          create(ListResponseSchema, {
            sessions: [...sessionsOf(callerOf(context).sandbox).values()]
              .filter(({ end }) => end === null)
              .map(({ command, pid, tag, uuid }) => ({
                command,
                pid,
                ...(tag === undefined ? {} : { tag }),
                ...(uuid === undefined ? {} : { sessionUuid: uuid }),
              })),
          }),

        async *start(request, context) {
          const caller = callerOf(context);
          const { sandbox } = caller;
          const { command, tag, sessionUuid: uuid } = request;
          if (command === undefined) throw new ConnectError("command is required", Code.InvalidArgument);
          const mine = sessionsOf(sandbox);
          let session = [...mine.values()].find((it) => uuid !== undefined && it.uuid === uuid);
          if (session === undefined) {
            session = await begin(sandbox, command, { tag, uuid, stdin: request.stdin ?? true });
            mine.set(session.pid, session);
          }
          for await (const event of events(session, context, emulator, caller)) {
            yield create(StartResponseSchema, { event });
          }
        },

        async *connect(request, context) {
          const caller = callerOf(context);
          const { sandbox } = caller;
          const session = find(sandbox, request.session);
          for await (const event of events(session, context, emulator, caller)) {
            yield create(ConnectResponseSchema, { event });
          }
        },

        async sendInput(request, context) {
          const { program, end } = find(callerOf(context).sandbox, request.session);
          if (end !== null) throw new ConnectError("session has ended", Code.NotFound);
          const { value } = request.input?.input ?? { value: undefined };
          if (value !== undefined) await program.write(value);
          return create(SendInputResponseSchema, {});
        },

        async sendSignal(request, context) {
          const { sandbox } = callerOf(context);
          const { pid } = find(sandbox, request.session);
          if (sandbox.box !== undefined) {
            await signal(sandbox.box, pid, request.signal === Signal.SIGKILL ? "KILL" : "TERM");
          }
          return create(SendSignalResponseSchema, {});
        },
      });
    },
  });

  // The adapter reads the bodies itself.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, _payload, done) => done(null));
  app.post(`${prefix}/command_session.CommandSession/:method`, async (request, reply) => {
    const sandbox = sandboxOf(request);
    // Containers have no such service.
    if (sandbox === undefined || !sandbox.isVm) return reply.code(404).send({ error: "not_found" });
    const isJson = (request.headers["content-type"] ?? "").includes("json");
    if (isJson && !emulator.knobs.jsonCodec) return reply.code(415).send();
    const cut = (): void => void request.raw.socket.destroy();
    requests.set(request.raw, { sandbox, fault: streamFault(request), cut });
    request.raw.url = `/command_session.CommandSession/${(request.params as { readonly method: string }).method}`;
    reply.hijack();
    handler(request.raw, reply.raw);
    return reply;
  });
}

async function begin(
  sandbox: Sandbox,
  command: CommandSpec,
  options: { readonly tag: string | undefined; readonly uuid: string | undefined; readonly stdin: boolean },
): Promise<Session> {
  if (sandbox.box === undefined) throw new ConnectError("sandbox not found", Code.NotFound);
  const program = await sandbox.box.run([command.cmd, ...command.args], {
    env: command.envs,
    stdin: options.stdin,
    direct: true,
    ...(command.cwd ? { cwd: command.cwd } : {}),
    ...(command.user ? { user: command.user } : {}),
  });
  if (program.pid === null) {
    let said = "";
    for await (const { chunk } of program.output) said += chunk.toString("utf8");
    throw new ConnectError(`failed to start: ${said.trim()}`, Code.InvalidArgument);
  }
  const { tag, uuid } = options;
  const session: Session = {
    pid: program.pid,
    tag,
    uuid,
    command,
    program,
    listeners: new Set(),
    end: null,
    isLost: false,
  };
  void pump(session);
  return session;
}

/** Everybody who listens holds the program back; with nobody its output is lost. */
async function pump(session: Session): Promise<void> {
  const tell = async (event: CommandSessionEvent): Promise<void> => {
    await Promise.all([...session.listeners].map((listener) => listener(event)));
  };
  // Who has started it is about to listen.
  await new Promise((resolve) => setImmediate(resolve));
  for await (const { stream, chunk } of session.program.output) {
    const output = { case: stream, value: new Uint8Array(chunk) };
    await tell(create(CommandSessionEventSchema, { event: { case: "data", value: { output } } }));
  }
  const exitCode = await session.program.exitCode().catch((error: unknown) => {
    process.stderr.write(`program ${session.pid}: ${String(error)}\n`);
    return null;
  });
  if (exitCode === null) {
    session.isLost = true;
    // Wakes who listens.
    await tell(create(CommandSessionEventSchema, { event: { case: "keepalive", value: {} } }));
    return;
  }
  const value = { exitCode, exited: exitCode < 128, status: `exit status ${exitCode}` };
  session.end = create(CommandSessionEventSchema, { event: { case: "end", value } });
  await tell(session.end);
}

/** The events of a session for one listener: its start, data, keepalives, its end. The deadline of the call kills the program; a caller who goes does not. */
async function* events(
  session: Session,
  context: HandlerContext,
  emulator: Emulator,
  { sandbox, fault, cut }: Caller,
): AsyncGenerator<CommandSessionEvent> {
  const waiting: { readonly event: CommandSessionEvent; readonly taken: () => void }[] = [];
  let wake: (() => void) | undefined;
  let isGone = false;
  const listener = (event: CommandSessionEvent): Promise<void> =>
    new Promise((resolve) => {
      if (isGone) {
        resolve();
        return;
      }
      waiting.push({ event, taken: resolve });
      wake?.();
    });
  session.listeners.add(listener);
  const onAbort = (): void => {
    isGone = true;
    wake?.();
  };
  context.signal.addEventListener("abort", onAbort, { once: true });
  let sent = 0;
  const throwIfFaulty = (): void => {
    if (fault === undefined || sent < fault.events) return;
    if (fault.kind === "connect-error") throw new ConnectError(fault.message, codeNamed(fault.code));
    cut();
    throw new ConnectError("cut", Code.Unknown);
  };
  try {
    throwIfFaulty();
    yield create(CommandSessionEventSchema, { event: { case: "start", value: { pid: session.pid } } });
    sent += 1;
    if (session.end !== null && waiting.length === 0) yield session.end;
    else {
      for (;;) {
        throwIfFaulty();
        if (session.isLost) throw new ConnectError("the sandbox went away", Code.Unavailable);
        const next = waiting.shift();
        if (next !== undefined) {
          yield next.event;
          sent += 1;
          next.taken();
          if (next.event.event.case === "end") return;
          continue;
        }
        if (isGone) return;
        const timer = setTimeout(() => wake?.(), emulator.knobs.keepaliveMs);
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
        clearTimeout(timer);
        if (waiting.length === 0 && !isGone) {
          yield create(CommandSessionEventSchema, { event: { case: "keepalive", value: {} } });
        }
      }
    }
  } finally {
    isGone = true;
    session.listeners.delete(listener);
    for (const { taken } of waiting) taken();
    context.signal.removeEventListener("abort", onAbort);
    const timedOut =
      context.signal.reason instanceof ConnectError && context.signal.reason.code === Code.DeadlineExceeded;
    if (timedOut && session.end === null && sandbox.box !== undefined) {
      await signal(sandbox.box, session.pid, "KILL").catch(() => undefined);
    }
  }
}

function codeNamed(name: string): Code {
  const found = Object.entries(Code).find(([key]) => key.toLowerCase() === name.replaceAll("_", "").toLowerCase());
  return typeof found?.[1] === "number" ? found[1] : Code.Unknown;
}
