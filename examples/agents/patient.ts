import type { AgentContext } from "@breakwater/harbor-taskset";

/** An agent as a module: `breakwater run --agent ./examples/agents/patient.ts`. It looks around and then does what the task's title says. */
export default async function patientAgent({ box, instruction }: AgentContext): Promise<void> {
  const { stdout } = await box.exec(["ls", "-l", "/app"]);
  process.stderr.write(`${instruction.split("\n")[0]}\n${Buffer.from(stdout).toString()}`);
  await box.upload(
    [
      {
        path: "slug.py",
        content: 'import re\n\n\ndef slug(title):\n    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))\n',
      },
    ],
    "/app",
  );
}
