import { randomBytes } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { runCommand } from "../src/command.ts";

interface Certificate {
  readonly name: string;
  /** As OpenSSL writes it. Kubernetes takes CN for the user and O for the group. */
  readonly subject: string;
  readonly usage: "serverAuth" | "clientAuth";
  readonly alternativeNames?: string;
}

/** Users that get a kubeconfig. `driver` is the one that the tests run as. */
const users = ["admin", "controller-manager", "scheduler", "node", "netpol", "driver"] as const;

/** A throw-away authority, the certificates of one cluster, and a kubeconfig for each of its users, all in `folder`. */
export async function writePki(
  folder: string,
  cluster: {
    readonly server: string;
    readonly nodeName: string;
    readonly nodeAddress: string;
    readonly namespace: string;
  },
): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await key(folder, "ca");
  const extensions = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"];
  const request = ["req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=breakwater-test", "-days", "30"];
  await openssl(folder, [...request, ...extensions.flatMap((extension) => ["-addext", extension]), "-out", "ca.crt"]);
  const { nodeName, nodeAddress } = cluster;
  const certificates: readonly Certificate[] = [
    {
      name: "apiserver",
      subject: "/CN=kube-apiserver",
      usage: "serverAuth",
      alternativeNames: `DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost,IP:127.0.0.1,IP:${nodeAddress},IP:10.96.0.1`,
    },
    {
      name: "kubelet",
      subject: `/CN=${nodeName}`,
      usage: "serverAuth",
      alternativeNames: `DNS:${nodeName},IP:${nodeAddress}`,
    },
    { name: "apiserver-kubelet", subject: "/O=system:masters/CN=kube-apiserver-kubelet-client", usage: "clientAuth" },
    { name: "admin", subject: "/O=system:masters/CN=admin", usage: "clientAuth" },
    { name: "controller-manager", subject: "/CN=system:kube-controller-manager", usage: "clientAuth" },
    { name: "scheduler", subject: "/CN=system:kube-scheduler", usage: "clientAuth" },
    { name: "node", subject: `/O=system:nodes/CN=system:node:${nodeName}`, usage: "clientAuth" },
    { name: "netpol", subject: "/CN=breakwater-netpol", usage: "clientAuth" },
    { name: "driver", subject: "/CN=breakwater-driver", usage: "clientAuth" },
  ];
  await Promise.all([...certificates.map((each) => sign(folder, each)), serviceAccountKey(folder)]);
  for (const user of users) await kubeconfig(folder, user, cluster);
}

async function sign(folder: string, { name, subject, usage, alternativeNames }: Certificate): Promise<void> {
  const lines = [`extendedKeyUsage=${usage}`, "keyUsage=digitalSignature"];
  if (alternativeNames !== undefined) lines.push(`subjectAltName=${alternativeNames}`);
  await writeFile(join(folder, `${name}.ext`), `${lines.join("\n")}\n`);
  await key(folder, name);
  await openssl(folder, ["req", "-new", "-key", `${name}.key`, "-subj", subject, "-out", `${name}.csr`]);
  const authority = ["-CA", "ca.crt", "-CAkey", "ca.key", "-set_serial", `0x${randomBytes(8).toString("hex")}`];
  const request = ["x509", "-req", "-in", `${name}.csr`, "-days", "30", "-extfile", `${name}.ext`];
  await openssl(folder, [...request, ...authority, "-out", `${name}.crt`]);
}

async function key(folder: string, name: string): Promise<void> {
  await openssl(folder, ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", `${name}.key`]);
}

async function serviceAccountKey(folder: string): Promise<void> {
  await key(folder, "service-account");
  await openssl(folder, ["pkey", "-in", "service-account.key", "-pubout", "-out", "service-account.pub"]);
}

/** JSON is YAML. */
async function kubeconfig(
  folder: string,
  user: string,
  { server, namespace }: { readonly server: string; readonly namespace: string },
): Promise<void> {
  const data = async (file: string): Promise<string> => (await readFile(join(folder, file))).toString("base64");
  const name = "breakwater-test";
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name, cluster: { server, "certificate-authority-data": await data("ca.crt") } }],
    users: [
      {
        name: user,
        user: { "client-certificate-data": await data(`${user}.crt`), "client-key-data": await data(`${user}.key`) },
      },
    ],
    contexts: [{ name, context: { cluster: name, user, namespace } }],
    "current-context": name,
  };
  await writeFile(join(folder, `${user}.kubeconfig`), JSON.stringify(config, undefined, 2), { mode: 0o600 });
}

async function openssl(folder: string, args: readonly string[]): Promise<void> {
  await runCommand(["openssl", ...args], { timeoutMs: 30_000, cwd: folder });
}
