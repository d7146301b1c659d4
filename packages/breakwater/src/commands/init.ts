import { mkdir, readdir, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative, resolve } from "node:path";
import { Command } from "commander";

import { EXIT_OK, UsageError } from "../exit-codes.ts";
import { newTask } from "../new-task.ts";
import type { Exit } from "../program.ts";
import { workingDirectory } from "../shared-options.ts";

/** Writes a small task that is graded in a box of its own, to be changed into another one. */
export function initCommand(exit: Exit): Command {
  return new Command("init")
    .description("Write a small task that is graded in a box of its own, to begin with.")
    .argument("<folder>", "is made; one that exists must be empty")
    .option(
      "--image <reference>",
      "what the boxes are made from: Debian-like, with sh and coreutils",
      "debian:bookworm-slim",
    )
    .addHelpText("after", "\nExample:\n  breakwater init tasks/my-task && breakwater run -p tasks/my-task\n")
    .action(async (folder: string, options: { image: string }) => {
      const here = workingDirectory();
      const directory = resolve(here, folder);
      if (/\s/.test(options.image) || options.image === "")
        throw new UsageError(`--image: ${JSON.stringify(options.image)} is no image`);
      await writeTask(directory, folder, newTask(basename(directory), options.image));
      const shown = relative(here, directory) || ".";
      process.stdout.write(
        `${shown}: a task that is graded in a box of its own\n  breakwater check -p ${shown}\n  breakwater run -p ${shown} -a oracle\n`,
      );
      exit(EXIT_OK);
    });
}

async function writeTask(directory: string, folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  let there: readonly string[];
  try {
    await mkdir(directory, { recursive: true });
    there = await readdir(directory);
  } catch (cause) {
    throw new UsageError(`${folder}: a folder cannot be made there (${(cause as NodeJS.ErrnoException).code})`, {
      cause,
    });
  }
  if (there.length > 0) throw new UsageError(`${folder}: is not empty; name a new folder`);
  for (const [path, content] of Object.entries(files)) {
    const file = join(directory, path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, content, { mode: path.endsWith(".sh") ? 0o755 : 0o644, flag: "wx" });
  }
}
