import type { Proof } from "@breakwater/runtime-api";

/** What the backend was asked about which object, and what it answered just now. */
export function proofOf(id: string, question: string, answer: string): Proof {
  return { id, question, answer, at: new Date().toISOString() };
}
