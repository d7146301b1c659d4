import { createHash } from "node:crypto";

/** A reward file's content and what becomes of it. */
export interface RewardShape {
  readonly file: "reward.json" | "reward.txt";
  readonly content: string;
  /** The rewards as JSON, or the reason why there are none. */
  readonly outcome: string;
}

/** The table of `docs/grading.md`, line by line; a unit test compares. */
export const REWARD_SHAPES: readonly RewardShape[] = [
  { file: "reward.json", content: '{"reward": 1}', outcome: '{"reward":1}' },
  { file: "reward.json", content: '{"reward": 0}', outcome: '{"reward":0}' },
  { file: "reward.json", content: '{"reward": 0.25}\n', outcome: '{"reward":0.25}' },
  { file: "reward.json", content: '{"reward": -1.5e2}', outcome: '{"reward":-150}' },
  { file: "reward.json", content: '{"reward": 1, "style": 0.5}', outcome: '{"reward":1,"style":0.5}' },
  { file: "reward.json", content: '{"speed": 0.5, "style": 2}', outcome: '{"speed":0.5,"style":2}' },
  { file: "reward.json", content: '{"score": 0.5}', outcome: '{"score":0.5}' },
  { file: "reward.json", content: "1", outcome: '{"reward":1}' },
  { file: "reward.json", content: " 0.5\r\n", outcome: '{"reward":0.5}' },
  { file: "reward.json", content: "-0", outcome: '{"reward":0}' },
  { file: "reward.json", content: "", outcome: "empty" },
  { file: "reward.json", content: "\n", outcome: "invalid" },
  { file: "reward.json", content: '"1"', outcome: "invalid" },
  { file: "reward.json", content: "true", outcome: "invalid" },
  { file: "reward.json", content: "null", outcome: "invalid" },
  { file: "reward.json", content: "[]", outcome: "invalid" },
  { file: "reward.json", content: "[1]", outcome: "invalid" },
  { file: "reward.json", content: "{}", outcome: "invalid" },
  { file: "reward.json", content: '{"reward": "1"}', outcome: "invalid" },
  { file: "reward.json", content: '{"reward": true}', outcome: "invalid" },
  { file: "reward.json", content: '{"reward": null}', outcome: "invalid" },
  { file: "reward.json", content: '{"reward": [1]}', outcome: "invalid" },
  { file: "reward.json", content: '{"reward": {"value": 1}}', outcome: "invalid" },
  { file: "reward.json", content: '{"reward": 1, "note": "good"}', outcome: "invalid" },
  { file: "reward.json", content: '{"reward": NaN}', outcome: "invalid" },
  { file: "reward.json", content: '{"reward": Infinity}', outcome: "invalid" },
  { file: "reward.json", content: '{"reward": 1e999}', outcome: "invalid" },
  { file: "reward.json", content: "1e999", outcome: "invalid" },
  { file: "reward.json", content: '{"reward": 0, "reward": 1}', outcome: "invalid" },
  { file: "reward.json", content: '{"reward": 0, "re\\u0077ard": 1}', outcome: "invalid" },
  { file: "reward.json", content: '{"__proto__": 1}', outcome: '{"__proto__":1}' },
  { file: "reward.json", content: '{"reward": 1,}', outcome: "invalid" },
  { file: "reward.json", content: '{"reward": 1} passed', outcome: "invalid" },
  { file: "reward.json", content: '\ufeff{"reward": 1}', outcome: "invalid" },
  { file: "reward.json", content: '{"reward": 0x10}', outcome: "invalid" },
  { file: "reward.json", content: '{"reward": 01}', outcome: "invalid" },
  { file: "reward.txt", content: "1", outcome: '{"reward":1}' },
  { file: "reward.txt", content: "0\n", outcome: '{"reward":0}' },
  { file: "reward.txt", content: " 1.0\r\n", outcome: '{"reward":1}' },
  { file: "reward.txt", content: "+.5", outcome: '{"reward":0.5}' },
  { file: "reward.txt", content: "1.", outcome: '{"reward":1}' },
  { file: "reward.txt", content: "1e3", outcome: '{"reward":1000}' },
  { file: "reward.txt", content: "-0", outcome: '{"reward":0}' },
  { file: "reward.txt", content: "-2.5", outcome: '{"reward":-2.5}' },
  { file: "reward.txt", content: "", outcome: "empty" },
  { file: "reward.txt", content: "\n", outcome: "invalid" },
  { file: "reward.txt", content: " ", outcome: "invalid" },
  { file: "reward.txt", content: "\ufeff1.0", outcome: "invalid" },
  { file: "reward.txt", content: "NaN", outcome: "invalid" },
  { file: "reward.txt", content: "inf", outcome: "invalid" },
  { file: "reward.txt", content: "-Infinity", outcome: "invalid" },
  { file: "reward.txt", content: "1e400", outcome: "invalid" },
  { file: "reward.txt", content: "0x10", outcome: "invalid" },
  { file: "reward.txt", content: "1_0", outcome: "invalid" },
  { file: "reward.txt", content: "1,0", outcome: "invalid" },
  { file: "reward.txt", content: "1\n0", outcome: "invalid" },
  { file: "reward.txt", content: "1.0 passed", outcome: "invalid" },
  { file: "reward.txt", content: "true", outcome: "invalid" },
  { file: "reward.txt", content: "٣", outcome: "invalid" },
  { file: "reward.txt", content: '{"reward": 1}', outcome: "invalid" },
];

/** What else can be in the way of reading a reward. */
export interface RewardObstacle {
  readonly id: string;
  /** As `docs/grading.md` says it. */
  readonly what: string;
  /** Shell: what the verifier does. */
  readonly leave: string;
  readonly outcome: string;
}

export const REWARD_OBSTACLES: readonly RewardObstacle[] = [
  { id: "missing", what: "neither file, exit code 0", leave: "exit 0", outcome: "missing" },
  { id: "crashed", what: "neither file, another exit code than 0", leave: "exit 3", outcome: "crashed" },
  {
    id: "exit-code",
    what: "a valid reward and another exit code than 0",
    leave: "echo 1 >reward.txt; exit 3",
    outcome: '{"reward":1}',
  },
  {
    id: "invalid-beside-valid",
    what: "an invalid reward.json beside a valid reward.txt",
    leave: "echo 1 >reward.txt; echo '{}' >reward.json",
    outcome: "invalid",
  },
  {
    id: "empty-beside-valid",
    what: "an empty reward.json beside a valid reward.txt",
    leave: "echo 1 >reward.txt; : >reward.json",
    outcome: "empty",
  },
  {
    id: "valid-beside-invalid",
    what: "a valid reward.json beside an invalid reward.txt",
    leave: "echo passed >reward.txt; echo 0.5 >reward.json",
    outcome: '{"reward":0.5}',
  },
  {
    id: "link",
    what: "a link in the file's place",
    leave: "echo 1 >elsewhere; ln -s elsewhere reward.json",
    outcome: "invalid",
  },
  {
    id: "broken-link",
    what: "a link to nowhere in the file's place, beside a valid reward.txt",
    leave: "echo 1 >reward.txt; ln -s nowhere reward.json",
    outcome: "invalid",
  },
  { id: "directory", what: "a directory in the file's place", leave: "mkdir reward.txt", outcome: "invalid" },
  { id: "fifo", what: "a FIFO in the file's place", leave: "mkfifo reward.txt", outcome: "invalid" },
  { id: "device", what: "a device in the file's place", leave: "mknod reward.txt c 1 3", outcome: "invalid" },
  {
    id: "socket",
    what: "a socket in the file's place",
    leave: `python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("reward.txt")'`,
    outcome: "invalid",
  },
  {
    id: "large",
    what: "more than 1 MiB",
    leave: "head -c 1048577 /dev/zero | tr '\\0' 1 >reward.txt",
    outcome: "invalid",
  },
  { id: "not-utf-8", what: "not UTF-8", leave: "printf '\\377\\3761' >reward.txt", outcome: "invalid" },
];

/** Part of an id: the same as long as the shape is. */
export function shapeId({ file, content }: RewardShape): string {
  const hash = createHash("sha256").update(content).digest("hex").slice(0, 8);
  return `${file === "reward.json" ? "json" : "text"}-${hash}`;
}
