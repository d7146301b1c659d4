export { dockerDriver, dockerDriver as default } from "./driver.ts";
export type { DockerDriverOptions } from "./options.ts";
