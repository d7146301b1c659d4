/** Gives a class of errors its name and the brand by which all copies of this package know it; `instanceof` knows one copy only. */
export function brandErrors(prototype: Error, brand: symbol, name: string): void {
  Object.defineProperty(prototype, brand, { value: true });
  Object.defineProperty(prototype, "name", { value: name, configurable: true, writable: true });
}

/** With `codes`, only for those. */
export function isBranded(value: unknown, brand: symbol, codes: readonly string[]): boolean {
  return (
    typeof value === "object" &&
    value !== null &&
    brand in value &&
    (codes.length === 0 || codes.some((code) => code === (value as { readonly code?: unknown }).code))
  );
}
