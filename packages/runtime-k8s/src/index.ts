export { k8sDriver, k8sDriver as default } from "./driver.ts";
export type { K8sDriverOptions } from "./options.ts";
