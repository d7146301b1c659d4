/** Throws a `TypeError` for a waiver of a case that does not exist, or without a link to its reason. */
export function checkWaivers(waive: Readonly<Record<string, string>>, cases: readonly { readonly id: string }[]): void {
  const known = new Set(cases.map((it) => it.id));
  for (const [id, link] of Object.entries(waive)) {
    if (!known.has(id)) throw new TypeError(`waive: there is no case "${id}"; see docs/conformance.md for the ids`);
    if (!/^https?:\/\//.test(link))
      throw new TypeError(`waive: "${id}" needs a link to the reason, got ${JSON.stringify(link)}`);
  }
}
