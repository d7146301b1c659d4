export { bubblewrapDriver, type BubblewrapDriverOptions, bubblewrapDriver as default } from "./driver.ts";
