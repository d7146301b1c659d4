export { bubblewrapDriver, bubblewrapDriver as default } from "./driver.ts";
export type { BubblewrapDriverOptions } from "./options.ts";
