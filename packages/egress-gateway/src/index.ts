export type { ForwarderReport } from "./box.ts";
export { gatewayBundle } from "./bundle.ts";
export { GatewayControl, GatewayError } from "./control-client.ts";
export type { ControlOptions, ControlTransport, GatewayErrorCode } from "./control-client.ts";
export type { ControlRefusal, GatewayStatus } from "./control-messages.ts";
export type { DenialRule } from "./decide.ts";
export { DEFAULT_EGRESS_BASE_IMAGE, forwarderImage, gatewayImage } from "./images.ts";
export type { ImageRecipe } from "./images.ts";
export {
  BOXES_DIRECTORY,
  CONTROL_ARGV,
  CONTROL_DIRECTORY,
  FORWARDER_MEMORY_BYTES,
  forwarderArgv,
  GATEWAY_RESOURCES,
  GATEWAY_USER,
  gatewayArgv,
  PROXY_ENVIRONMENT,
  RESOLVER_ADDRESS,
} from "./paths.ts";
export type { Denial, EgressRecords } from "./records.ts";
