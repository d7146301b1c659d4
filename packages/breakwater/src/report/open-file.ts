import open from "open";

/** Opens a file with what the user's desktop has for it, where there is one to look at; else nothing happens. */
export async function openFile(file: string): Promise<void> {
  const { DISPLAY, WAYLAND_DISPLAY } = process.env;
  const hasDesktop = process.platform !== "linux" || (DISPLAY ?? WAYLAND_DISPLAY ?? "") !== "";
  if (!process.stdout.isTTY || !hasDesktop) return;
  const child = await open(file);
  child.on("error", (error) => process.stderr.write(`the report could not be opened: ${error.message}\n`));
}
