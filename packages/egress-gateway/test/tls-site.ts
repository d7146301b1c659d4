// A real TLS server, and what real clients say to one. Its key is known to everybody.

import { once } from "node:events";
import type { Server, Socket } from "node:net";
import { Duplex } from "node:stream";
import { connect, type ConnectionOptions, createServer } from "node:tls";

const key = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgjppLPVOIuJACWACr
ktcHKkFmFskHoR7FjOZ6B5Qs/i+hRANCAAQ5oJvKGXvdtfAOSxYIQ7U1RFVbmw/1
tvYhaDjAWGcwGRbbzjhja1aMjhpYuQRtj3QStsL5j9ZjCxLgAZAEC3C6
-----END PRIVATE KEY-----`;
export const certificate = `-----BEGIN CERTIFICATE-----
MIIBnDCCAUGgAwIBAgIUTPBNI/kjFGWc9qU1Cef71KnSw80wCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMzAxOTQ2NTBaGA8yMTI2MTEwNjE5NDY1
MFowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABDmg
m8oZe9218A5LFghDtTVEVVubD/W29iFoOMBYZzAZFtvOOGNrVoyOGli5BG2PdBK2
wvmP1mMLEuABkAQLcLqjeTB3MB0GA1UdDgQWBBTsjvBqDkpKLZQqR5w4Jw/P9KZN
1DAfBgNVHSMEGDAWgBTsjvBqDkpKLZQqR5w4Jw/P9KZN1DAPBgNVHRMBAf8EBTAD
AQH/MCQGA1UdEQQdMBuCC2V4YW1wbGUuY29tggxldmlsLmV4YW1wbGUwCgYIKoZI
zj0EAwIDSQAwRgIhANHN7wZuy12Zm9K1taEAx7qhxGFZL9qBVexj92fiRKQ1AiEA
poZ01Q2NmY4nMxy/KhUN38S+VCVP3EDiXVuYDVhtrNc=
-----END CERTIFICATE-----`;

/** Has one kind of key exchange only, and asks those again who begin with another. `asked` has the name of every greeting that it went by. */
export function tlsSite(asked: string[]): Server {
  const server = createServer({
    key,
    cert: certificate,
    ecdhCurve: "P-256",
    SNICallback(name, settle) {
      asked.push(name);
      settle(null);
    },
  });
  server.on("tlsClientError", () => undefined);
  return server.on("secureConnection", (socket) => socket.on("error", () => undefined).pipe(socket));
}

/** The first greeting of Node's own client. */
export function realHello(servername: string | undefined, options: ConnectionOptions = {}): Promise<Buffer> {
  return new Promise((resolve) => {
    const wire = new Duplex({ read: () => undefined, write: (chunk: Buffer) => resolve(chunk) });
    connect({ socket: wire, ...options, ...(servername === undefined ? {} : { servername }) }).on(
      "error",
      () => undefined,
    );
  });
}

/** Speaks TLS over a connection, and gives back what the server echoes. */
export async function echoOverTls(socket: Socket, options: ConnectionOptions): Promise<string> {
  const secure = connect({ socket, ca: certificate, servername: "example.com", ...options });
  try {
    await once(secure, "secureConnect");
    secure.write("ping");
    const [answer] = (await once(secure, "data")) as [Buffer];
    return String(answer);
  } finally {
    secure.destroy();
  }
}
