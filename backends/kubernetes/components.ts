import { spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";

export const componentNames = [
  "etcd",
  "containerd",
  "kube-apiserver",
  "kube-controller-manager",
  "kube-scheduler",
  "kubelet",
  "netpol",
] as const;

/** What a cluster consists of. `netpol` enforces network policies. */
export type ComponentName = (typeof componentNames)[number];

export interface ClusterSettings {
  readonly runFolder: string;
  readonly nodeName: string;
  readonly nodeAddress: string;
  /** The parent of all control groups of boxes. */
  readonly controlGroup: string;
  /** What starts a program in all of the cluster's namespaces. */
  readonly enter: readonly [string, ...string[]];
}

/** An address that nothing answers on: a box's resolver is the driver's affair. */
const DEAD_RESOLVER = "192.0.2.1";
const POD_ADDRESSES = "10.244.0.0/24";
const SERVICE_ADDRESSES = "10.96.0.0/16";
/** What holds the namespaces of a pod. */
export const PAUSE_IMAGE = "breakwater.test/pause:1";

/** The files that components are configured by. */
export async function writeConfiguration(settings: ClusterSettings): Promise<void> {
  const { runFolder } = settings;
  const files: Readonly<Record<string, string>> = {
    "containerd.toml": containerdConfiguration(runFolder),
    "kubelet.json": JSON.stringify(kubeletConfiguration(settings), undefined, 2),
    "pod-resolv.conf": `nameserver ${DEAD_RESOLVER}\n`,
    "cni/10-boxes.conflist": JSON.stringify(networkConfiguration(), undefined, 2),
  };
  for (const folder of ["cni", "logs", "volume-plugins"]) mkdirSync(join(runFolder, folder), { recursive: true });
  for (const [name, text] of Object.entries(files)) await writeFile(join(runFolder, name), text);
}

/** Starts a component in the cluster's namespaces; it outlives this process. Its output goes to `logs/NAME.log`. */
export function startComponent(settings: ClusterSettings, name: ComponentName): void {
  const { runFolder, enter } = settings;
  const [program, ...entering] = enter;
  const log = openSync(join(runFolder, "logs", `${name}.log`), "a");
  const child = spawn(program, [...entering, programOf(settings, name), ...argumentsOf(settings, name)], {
    detached: true,
    stdio: ["ignore", log, log],
    cwd: "/",
    env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME: "/root" },
  });
  closeSync(log);
  // What did not start is missed by whoever waits for it to be ready.
  child.on("error", () => {});
  child.unref();
}

/** One program with several names, see hyperkube.ts; containerd is Debian's. */
function programOf({ runFolder }: ClusterSettings, name: ComponentName): string {
  return join(runFolder, "bin", name);
}

function argumentsOf({ runFolder, nodeName, nodeAddress }: ClusterSettings, name: ComponentName): readonly string[] {
  const pki = (file: string): string => join(runFolder, "pki", file);
  const kubeconfig = (user: string): readonly string[] => [`--kubeconfig=${pki(`${user}.kubeconfig`)}`];
  const asUser = (user: string): readonly string[] => [
    ...kubeconfig(user),
    `--authentication-kubeconfig=${pki(`${user}.kubeconfig`)}`,
    `--authorization-kubeconfig=${pki(`${user}.kubeconfig`)}`,
    "--leader-elect=false",
    "--bind-address=127.0.0.1",
  ];
  switch (name) {
    case "etcd":
      return [
        "--name=breakwater",
        `--data-dir=${join(runFolder, "etcd")}`,
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=breakwater=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
        "--log-level=warn",
      ];
    case "containerd":
      return ["--config", join(runFolder, "containerd.toml"), "--log-level", "warn"];
    case "kube-apiserver":
      return [
        "--etcd-servers=http://127.0.0.1:2379",
        "--bind-address=0.0.0.0",
        `--advertise-address=${nodeAddress}`,
        "--secure-port=6443",
        `--tls-cert-file=${pki("apiserver.crt")}`,
        `--tls-private-key-file=${pki("apiserver.key")}`,
        `--client-ca-file=${pki("ca.crt")}`,
        "--service-account-issuer=https://kubernetes.default.svc",
        `--service-account-key-file=${pki("service-account.pub")}`,
        `--service-account-signing-key-file=${pki("service-account.key")}`,
        `--service-cluster-ip-range=${SERVICE_ADDRESSES}`,
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        `--kubelet-client-certificate=${pki("apiserver-kubelet.crt")}`,
        `--kubelet-client-key=${pki("apiserver-kubelet.key")}`,
        `--kubelet-certificate-authority=${pki("ca.crt")}`,
        "--kubelet-preferred-address-types=InternalIP",
        // There is no proxy of services here.
        "--endpoint-reconciler-type=none",
        "--profiling=false",
        `--requestheader-client-ca-file=${pki("ca.crt")}`,
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
      ];
    case "kube-controller-manager":
      return [
        ...asUser("controller-manager"),
        "--use-service-account-credentials=true",
        `--service-account-private-key-file=${pki("service-account.key")}`,
        `--root-ca-file=${pki("ca.crt")}`,
        `--cluster-cidr=${POD_ADDRESSES}`,
        "--allocate-node-cidrs=true",
        "--node-monitor-grace-period=10s",
        // By default its controllers wait for their turn for seconds.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
      ];
    case "kube-scheduler":
      return asUser("scheduler");
    case "kubelet":
      return [
        ...kubeconfig("node"),
        `--config=${join(runFolder, "kubelet.json")}`,
        `--hostname-override=${nodeName}`,
        `--node-ip=${nodeAddress}`,
        `--root-dir=${join(runFolder, "kubelet")}`,
        `--cert-dir=${join(runFolder, "kubelet/pki")}`,
      ];
    case "netpol":
      return [
        ...kubeconfig("netpol"),
        `--hostname-override=${nodeName}`,
        `--service-cluster-ip-range=${SERVICE_ADDRESSES}`,
        "--iptables-sync-period=60s",
      ];
  }
}

function containerdConfiguration(runFolder: string): string {
  const snapshotters = ["aufs", "btrfs", "devmapper", "zfs"].map((name) => `io.containerd.snapshotter.v1.${name}`);
  return `version = 2
root = ${JSON.stringify(join(runFolder, "containerd/root"))}
state = ${JSON.stringify(join(runFolder, "containerd/state"))}
disabled_plugins = ${JSON.stringify(["io.containerd.internal.v1.opt", ...snapshotters])}
[grpc]
  address = ${JSON.stringify(join(runFolder, "containerd.sock"))}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = ${JSON.stringify(PAUSE_IMAGE)}
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE no process may be made less likely to be ended when memory is short.
  restrict_oom_score_adj = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = ${JSON.stringify(join(runFolder, "cni"))}
`;
}

function kubeletConfiguration({ runFolder, controlGroup }: ClusterSettings): unknown {
  const pki = (file: string): string => join(runFolder, "pki", file);
  return {
    apiVersion: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
    address: "0.0.0.0",
    containerRuntimeEndpoint: `unix://${join(runFolder, "containerd.sock")}`,
    cgroupDriver: "cgroupfs",
    cgroupRoot: `/${controlGroup}`,
    failCgroupV1: false,
    failSwapOn: false,
    enforceNodeAllocatable: [],
    authentication: {
      anonymous: { enabled: false },
      webhook: { enabled: true },
      x509: { clientCAFile: pki("ca.crt") },
    },
    authorization: { mode: "Webhook" },
    tlsCertFile: pki("kubelet.crt"),
    tlsPrivateKeyFile: pki("kubelet.key"),
    resolvConf: join(runFolder, "pod-resolv.conf"),
    clusterDNS: [],
    makeIPTablesUtilChains: false,
    serializeImagePulls: false,
    maxPods: 110,
    podPidsLimit: 1024,
    podLogsDir: join(runFolder, "pod-logs"),
    volumePluginDir: join(runFolder, "volume-plugins"),
    imageGCHighThresholdPercent: 100,
    evictionHard: { "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
    nodeStatusUpdateFrequency: "4s",
    nodeLeaseDurationSeconds: 8,
  };
}

/** Each pod on a wire of its own: what goes from one to another is routed, so that the enforcer sees it. */
function networkConfiguration(): unknown {
  return {
    cniVersion: "1.0.0",
    name: "boxes",
    plugins: [
      {
        type: "ptp",
        ipMasq: true,
        mtu: 1500,
        ipam: {
          type: "host-local",
          dataDir: "/var/lib/cni/networks",
          ranges: [[{ subnet: POD_ADDRESSES }]],
          routes: [{ dst: "0.0.0.0/0" }],
        },
      },
    ],
  };
}
