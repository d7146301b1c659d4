// A gateway in a process of its own, so that its memory is its own: `node served-gateway.ts BOXES CONTROL PORT`. Every name has one public
// address, and every connection goes to a port of this machine's loopback.

import { connect, type SocketConnectOpts } from "node:net";
import { Gateway } from "../src/gateway.ts";
import { STREAM_BYTES } from "../src/network.ts";
import { SITE } from "./gateway.ts";

const [boxesDirectory = "", controlDirectory = "", port = ""] = process.argv.slice(2);
const gateway = new Gateway({
  boxesDirectory,
  controlDirectory,
  network: {
    resolve: () => Promise.resolve([SITE]),
    connect: () =>
      connect({
        host: "127.0.0.1",
        port: Number(port),
        allowHalfOpen: true,
        noDelay: true,
        highWaterMark: STREAM_BYTES,
      } as SocketConnectOpts),
    relayDns: () => Promise.reject(new Error("there is no name server here")),
  },
});
await gateway.open();
process.stdout.write("ready\n");
