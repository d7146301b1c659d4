/** `npm run bench [-- NAME...]`: the benchmarks of these names, else all, one after the other. */
const benchmarks: Readonly<Record<string, () => Promise<unknown>>> = {
  exec: () => import("./exec.ts"),
  jobs: () => import("./jobs.ts"),
  network: () => import("./network.ts"),
  prime: () => import("./prime.ts"),
  tasks: () => import("./tasks.ts"),
};

const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(benchmarks);
for (const name of names) {
  const run = Object.hasOwn(benchmarks, name) ? benchmarks[name] : undefined;
  if (run === undefined) {
    console.error(`there is no benchmark ${JSON.stringify(name)}; there are: ${Object.keys(benchmarks).join(", ")}`);
    process.exit(2);
  }
  await run();
}

export {};
