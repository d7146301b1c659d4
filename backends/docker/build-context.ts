/** One regular file of a build context. */
export interface ContextFile {
  readonly name: string;
  readonly content: string | Uint8Array;
  /** Default: 0644. */
  readonly mode?: number;
}

/** A build context as a plain tar archive; always the same bytes for the same files. Names of at most 100 bytes. */
export function buildContext(files: readonly ContextFile[]): Uint8Array {
  const blocks = files.flatMap((file) => {
    const content = Buffer.from(file.content);
    const padding = Buffer.alloc((512 - (content.length % 512)) % 512);
    return [header(file.name, content.length, file.mode ?? 0o644), content, padding];
  });
  return Buffer.concat([...blocks, Buffer.alloc(1024)]);
}

function header(name: string, size: number, mode: number): Buffer {
  const block = Buffer.alloc(512);
  if (Buffer.byteLength(name) > 100) throw new TypeError(`name too long for a build context: ${name}`);
  const octal = (value: number, width: number): string => `${value.toString(8).padStart(width - 1, "0")}\0`;
  block.write(name, 0);
  block.write(octal(mode, 8), 100);
  block.write(octal(0, 8), 108);
  block.write(octal(0, 8), 116);
  block.write(octal(size, 12), 124);
  block.write(octal(0, 12), 136);
  block.write(" ".repeat(8), 148);
  block.write("0", 156);
  block.write("ustar\x0000", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}
