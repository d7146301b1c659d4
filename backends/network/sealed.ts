/** What `ip -json -details link` tells of one interface. */
export interface Interface {
  readonly ifname: string;
  readonly ifindex: number;
  /** The other end's index, for a veth. */
  readonly link_index?: number;
  readonly link_type: string;
  readonly linkinfo?: { readonly info_kind?: string };
}

/** What `ip -json route` tells of one route. */
export interface Route {
  readonly dst: string;
  readonly dev?: string;
  readonly gateway?: string;
}

/** The interfaces of one network namespace. */
export type InterfaceTable = readonly Interface[];

/**
 * Why packets could leave `host`: an empty list is the proof that they cannot.
 * Allowed are loopback, bridges, dummies, and veth pairs whose other end lies in one of `others` (namespaces of the same backend).
 */
export function waysOut(
  host: InterfaceTable,
  others: readonly InterfaceTable[],
  defaultRoutes: readonly Route[],
): string[] {
  const reasons = host.flatMap((link) => {
    const kind = link.linkinfo?.info_kind ?? link.link_type;
    if (kind === "loopback" || kind === "bridge" || kind === "dummy") return [];
    if (kind !== "veth") return [`${link.ifname} is of kind ${kind}`];
    const isOtherEnd = (other: Interface): boolean =>
      other.linkinfo?.info_kind === "veth" && other.ifindex === link.link_index && other.link_index === link.ifindex;
    return [...others, host].some((table) => table.some(isOtherEnd))
      ? []
      : [`the other end of ${link.ifname} is in no namespace of this backend`];
  });
  const routes = defaultRoutes
    .filter((route) => route.dst === "default" && route.dev !== "internet0")
    .map((route) => `a default route leads to ${route.dev ?? route.gateway ?? "somewhere"}`);
  const foreign = host.some((link) => link.ifname === "internet0") ? [] : ["this is not the backend's network"];
  return [...foreign, ...reasons, ...routes];
}
