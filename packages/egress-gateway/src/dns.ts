import { decode, encode, type Packet } from "dns-packet";
import { canonicalHost } from "./hosts.ts";
import type { Policy } from "./policy.ts";

/** The address that every allowed name has in a box: its own loopback, where the forwarder listens. */
export const LOOPBACK = "127.0.0.1";
/** Short, as a policy may change. */
const TTL_SECONDS = 5;

const HEADER_BYTES = 12;
const FLAG_RESPONSE = 0x8000;
const FLAG_RECURSION_DESIRED = 0x0100;
const FLAG_RECURSION_AVAILABLE = 0x0080;
const OPCODE = 0x7800;
const FORMAT_ERROR = 1;
const NO_SUCH_NAME = 3;
const NOT_IMPLEMENTED = 4;

export interface DnsAnswer {
  readonly message: Uint8Array;
  /** The name, if it was refused. */
  readonly refused: string | null;
}

/**
 * The answer to one DNS message; `null` for what is none. Nothing is asked of anybody: an allowed name has the address of the box's own
 * loopback, whether it exists or not, and every other name does not exist. Allowed names have no AAAA record, as a box may have no IPv6
 * while 127.0.0.1 is always there, and no record of another kind (an HTTPS record would bring keys that hide a TLS greeting's host).
 */
export function answerDns(question: Uint8Array, policy: Policy | null): DnsAnswer | null {
  const bytes = Buffer.from(question.buffer, question.byteOffset, question.byteLength);
  if (bytes.length < HEADER_BYTES || (bytes.readUInt16BE(2) & FLAG_RESPONSE) !== 0) return null;
  const id = bytes.readUInt16BE(0);
  const recursion = bytes.readUInt16BE(2) & FLAG_RECURSION_DESIRED;
  const answer = (code: number, rest: Partial<Packet>, refused: string | null = null): DnsAnswer => ({
    message: encode({ type: "response", id, flags: FLAG_RECURSION_AVAILABLE | recursion | code, ...rest }),
    refused,
  });
  if ((bytes.readUInt16BE(2) & OPCODE) !== 0) return answer(NOT_IMPLEMENTED, {});
  let questions: Packet["questions"];
  try {
    ({ questions } = decode(bytes));
  } catch {
    return answer(FORMAT_ERROR, {});
  }
  const asked = questions?.[0];
  if (asked === undefined || questions?.length !== 1) return answer(FORMAT_ERROR, {});
  const host = canonicalHost(asked.name);
  const isAllowed = host?.kind === "name" && policy !== null && policy.allows(host) !== null;
  if (!isAllowed) return answer(NO_SUCH_NAME, { questions: [asked] }, host?.text ?? asked.name);
  const addresses = asked.type === "A" && (asked.class ?? "IN") === "IN" ? [LOOPBACK] : [];
  const answers = addresses.map((data) => ({
    type: "A" as const,
    class: "IN" as const,
    name: asked.name,
    ttl: TTL_SECONDS,
    data,
  }));
  return answer(0, { questions: [asked], answers });
}
