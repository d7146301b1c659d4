import assert from "node:assert/strict";
import type { ExecOptions, Runtime } from "@breakwater/runtime-api";
import { perl, text, until } from "./box-tools.ts";

/** Long enough for a machine that does much else. */
const SECONDS = "15";

/**
 * A client for web servers without any library. TLS is not spoken: the hello is written by hand, and a server's answer to it can be told from everything
 * else by its first byte.
 */
const CLIENT = String.raw`
use strict; use Socket qw(getaddrinfo SOCK_STREAM); use POSIX (); $| = 1;
my ($verb, $seconds, @rest) = @ARGV;
sub say_and_end { syswrite(STDOUT, $_[0]); POSIX::_exit(0) }
POSIX::sigaction(14, POSIX::SigAction->new(sub { say_and_end("no answer within $seconds s") })); alarm $seconds;
sub dial {
  my ($host, $port) = @_;
  my ($error, @found) = getaddrinfo($host, $port, { socktype => SOCK_STREAM });
  say_and_end("cannot resolve $host") if $error;
  my $last = "no address";
  for my $it (@found) {
    socket(my $socket, $it->{family}, SOCK_STREAM, 0) or do { $last = "$!"; next };
    connect($socket, $it->{addr}) or do { $last = "$!"; next };
    return $socket;
  }
  say_and_end("cannot connect to $host: $last");
}
sub extension { pack("n n/a*", @_) }
sub hello {
  my ($name) = @_;
  my $extensions = ($name eq "" ? "" : extension(0, pack("n/a*", pack("C n/a*", 0, $name))))
    . extension(10, pack("n n n n", 6, 29, 23, 24)) . extension(11, pack("C C", 1, 0))
    . extension(13, pack("n n8", 16, 0x0403, 0x0503, 0x0603, 0x0804, 0x0805, 0x0806, 0x0401, 0x0501));
  my $random = join "", map { chr int rand 256 } 1 .. 32;
  my $body = pack("n a32 C", 0x0303, $random, 0) . pack("n n4", 8, 0xc02b, 0xc02f, 0xc02c, 0xc030) . pack("C C", 1, 0) . pack("n/a*", $extensions);
  my $message = pack("C a3 a*", 1, substr(pack("N", length $body), 1), $body);
  return pack("C n n/a*", 22, 0x0301, $message);
}
sub receive { my ($socket, $bytes) = @_; my $all = ""; while (length $all < $bytes) { sysread($socket, $all, $bytes - length $all, length $all) or last } return $all }
sub send_hello {
  my ($socket, $name) = @_;
  my $hello = hello($name);
  local $SIG{PIPE} = "IGNORE";
  syswrite($socket, $hello);
  my $first = receive($socket, 1);
  say_and_end("closed") if $first eq "";
  say_and_end("alert") if $first eq chr 21;
  say_and_end("not TLS: " . $first) if $first ne chr 22;
  return length $hello;
}
sub head { my ($socket) = @_; my $head = ""; while ($head !~ /\r\n\r\n/) { sysread($socket, $head, 1, length $head) or last } return $head }
sub status { return $_[0] =~ m{^HTTP/1\.[01] (\d{3})} ? $1 : "closed" }
sub proxy {
  my ($scheme) = @_;
  my $url = $ENV{$scheme . "_proxy"} // $ENV{uc($scheme . "_proxy")} // "";
  $url =~ m{^http://(?:[^@/]*@)?\[?([^\]/]+?)\]?:(\d+)/?$} or say_and_end("no proxy");
  return ($1, $2);
}
sub tunnel {
  my ($host, $port) = @_;
  my $socket = dial(proxy("https"));
  syswrite($socket, "CONNECT $host:$port HTTP/1.1\r\nHost: $host:$port\r\n\r\n");
  my $status = status(head($socket));
  say_and_end("refused $status") if $status ne "200";
  return $socket;
}
if ($verb eq "tls") { my ($host, $port, $name) = @rest; send_hello(dial($host, $port), $name); say_and_end("reached") }
if ($verb eq "tunnel") { my ($host, $port, $name) = @rest; send_hello(tunnel($host, $port), $name); say_and_end("reached") }
if ($verb eq "http" || $verb eq "proxied-http") {
  my ($host, $name, $target) = @rest;
  my $socket = $verb eq "http" ? dial($host, 80) : dial(proxy("http"));
  syswrite($socket, "GET $target HTTP/1.1\r\nHost: $name\r\nConnection: close\r\n\r\n");
  my $status = status(head($socket));
  say_and_end($status eq "200" ? "reached" : "refused $status");
}
if ($verb eq "ticks") {
  my ($way, $host, $port, $name) = @rest;
  my $socket = $way eq "tunnel" ? tunnel($host, $port) : dial($host, $port);
  if ($way ne "plain") { my $bytes = send_hello($socket, $name); receive($socket, $bytes - 1) }
  tick($socket);
}
if ($verb eq "datagram-ticks") {
  my ($host, $port) = @rest;
  my ($error, $it) = getaddrinfo($host, $port, { socktype => Socket::SOCK_DGRAM() }); say_and_end("cannot resolve") if $error;
  socket(my $socket, $it->{family}, Socket::SOCK_DGRAM(), 0) or die; connect($socket, $it->{addr}) or die "connect: $!";
  alarm 0;
  while (1) {
    send($socket, "tick", 0);
    my $ready = ""; vec($ready, fileno $socket, 1) = 1;
    if (select($ready, undef, undef, 0.2)) { recv($socket, my $answer, 100, 0) and syswrite(STDOUT, "echo " . now() . "\n"); select(undef, undef, undef, 0.2) }
  }
}
sub now { open(my $file, "<", "/proc/uptime"); return (split " ", <$file>)[0] }
sub tick {
  my ($socket) = @_;
  alarm 0;
  while (1) {
    local $SIG{PIPE} = "IGNORE";
    defined syswrite($socket, "tick\n") or last;
    my $answer = receive($socket, 5);
    last if $answer ne "tick\n";
    syswrite(STDOUT, "echo " . now() . "\n");
    select(undef, undef, undef, 0.2);
  }
  syswrite(STDOUT, "lost\n"); sleep 1000;
}
`;

async function client(box: Runtime, args: readonly string[], options: ExecOptions = {}): Promise<string> {
  const [verb = "", ...rest] = args;
  return perl(box, CLIENT, [verb, SECONDS, ...rest], { timeoutMs: 60_000, ...options });
}

export interface TlsTarget {
  /** Where to connect to: a name or an address. */
  readonly host: string;
  /** Default is 443. */
  readonly port?: number;
  /** The name in the hello; empty for none. Default is `host`. */
  readonly name?: string;
}

/** Sends a TLS hello as a client does that knows of no proxy: `reached` when a server answers it, else why not. */
export async function hello(box: Runtime, { host, port = 443, name = host }: TlsTarget): Promise<string> {
  return client(box, ["tls", host, String(port), name]);
}

/** The same through the proxy that the environment names: `refused 403` when the proxy says so, `no proxy` when there is none. */
export async function proxiedHello(box: Runtime, target: TlsTarget, options?: ExecOptions): Promise<string> {
  const { host, port = 443, name = host } = target;
  return client(box, ["tunnel", host, String(port), name], options);
}

/** `GET /` on port 80: `reached` when the answer is 200, `refused` with another status, else why not. */
export async function get(box: Runtime, host: string, name: string = host): Promise<string> {
  return client(box, ["http", host, name, "/"]);
}

/** The same through the proxy that the environment names. */
export async function proxiedGet(box: Runtime, host: string, name: string = host): Promise<string> {
  return client(box, ["proxied-http", host, name, `http://${host}/`]);
}

/** A conversation of a program in a box with a server that sends back what it gets: five times a second. */
export interface Conversation {
  /** How many answers have come so far. */
  readonly echoes: () => number;
  /** Fails unless it goes on: waits for more answers. */
  readonly assertGoesOn: () => Promise<void>;
  /** Fails if an answer has come after the given moment of the box's clock; waits for one. */
  readonly assertOverBy: (moment: number, what: string) => Promise<void>;
}

const ENOUGH_ECHOES = 5;
const SILENCE_MS = 2000;

/** `plain`: TCP. `tls`: after a hello to a server that sends even that back. `tunnel`: the same through the proxy. `datagrams`: UDP. */
export async function converse(
  box: Runtime,
  way: "plain" | "tls" | "tunnel" | "datagrams",
  { host, port = 443, name = host }: TlsTarget,
): Promise<Conversation> {
  const args =
    way === "datagrams"
      ? ["datagram-ticks", SECONDS, host, String(port)]
      : ["ticks", SECONDS, way, host, String(port), name];
  let said = "";
  const moments = (): readonly number[] => [...said.matchAll(/echo ([\d.]+)\n/g)].map((match) => Number(match[1]));
  const running = box.exec(["perl", "-e", CLIENT, ...args], {
    timeoutMs: 300_000,
    onOutput: (_stream, chunk) => {
      said += text(chunk);
    },
  });
  // It ends with the box; by then the case is over.
  running.catch(() => undefined);
  const more = async (): Promise<void> => {
    const before = moments().length;
    await until(
      `answers of ${host} (${way}); it said: ${said.slice(-200)}`,
      () => moments().length >= before + ENOUGH_ECHOES,
    );
  };
  await more();
  return {
    echoes: () => moments().length,
    assertGoesOn: more,
    assertOverBy: async (moment, what) => {
      // What the program has said may still be on its way.
      let count = -1;
      await until(`an end of the answers of ${host}`, async () => {
        const before = moments().length;
        await new Promise((resolve) => setTimeout(resolve, SILENCE_MS));
        const isSilent = before === moments().length;
        if (!isSilent) assert.ok((moments().at(-1) ?? 0) <= moment, `${what}: it goes on`);
        count = moments().length;
        return isSilent;
      });
      assert.ok(count > 0 && (moments().at(-1) ?? 0) <= moment, `${what}: it went on`);
    },
  };
}

/** The clock of the box, in seconds since the start of its machine: that of `Conversation`. */
export async function boxClock(box: Runtime): Promise<number> {
  return Number((await perl(box, `open(my $f, "<", "/proc/uptime"); print((split " ", <$f>)[0])`)).trim());
}
