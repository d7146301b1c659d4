export { primeDriver, primeDriver as default } from "./driver.ts";
export type { PrimeDriverOptions } from "./options.ts";
