/** Of 95 % confidence, both ends included. */
export interface Interval {
  readonly low: number;
  readonly high: number;
}

/** One trial that has a single reward. */
export interface Attempt {
  readonly task: string;
  readonly reward: number;
}

export interface Estimate {
  readonly value: number;
  /** `null`: there are too few samples to say. */
  readonly interval: Interval | null;
}

export interface PassAtK {
  readonly k: number;
  readonly value: number;
  readonly interval: Interval | null;
}

/** The reward from which a trial counts as passed. */
export const PASS_REWARD = 1;

const Z = 1.959964;
/** Fewer say too little about how far rewards of any size are spread. */
const LEAST_SAMPLES = 5;

/**
 * How many independent samples a mean has. Attempts at one task are not independent of each other, so tasks are counted, not trials; only of a single task
 * the attempts are.
 */
function samplesOf(attempts: readonly Attempt[]): readonly number[] {
  const tasks = Object.values(byTask(attempts)).map((rewards) => mean(rewards));
  return tasks.length > 1 ? tasks : attempts.map(({ reward }) => reward);
}

/** The share of attempts that passed; `null` if there is none. */
export function passRate(attempts: readonly Attempt[]): Estimate | null {
  return meanReward(attempts.map(({ task, reward }) => ({ task, reward: reward >= PASS_REWARD ? 1 : 0 })));
}

/** `null` if there is no attempt. Rewards between 0 and 1 get Wilson's score interval, any others one by Student's t distribution. */
export function meanReward(attempts: readonly Attempt[]): Estimate | null {
  if (attempts.length === 0) return null;
  const value = mean(attempts.map(({ reward }) => reward));
  const samples = samplesOf(attempts);
  const isShare = attempts.every(({ reward }) => reward >= 0 && reward <= 1);
  return { value, interval: isShare ? wilson(value, samples.length) : student(value, samples) };
}

/**
 * The chance that at least one of k attempts at a task passes, on average over the tasks: 1 - C(n-c, k) / C(n, k) for a task with c of n attempts passed. As in
 * Harbor, k is 1, powers of two and multiples of five, up to the attempts of the task that has fewest.
 */
export function passAtK(attempts: readonly Attempt[]): readonly PassAtK[] {
  const tasks = Object.values(byTask(attempts));
  const most = Math.min(...tasks.map(({ length }) => length));
  if (tasks.length === 0 || most < 1) return [];
  const steps = Array.from({ length: most }, (_, index) => index + 1);
  return steps
    .filter((k) => Number.isInteger(Math.log2(k)) || k % 5 === 0)
    .map((k) => {
      const value = mean(tasks.map((rewards) => passAtLeastOnce(rewards.length, rewards.filter(isPassed).length, k)));
      return { k, value, interval: tasks.length > 1 ? wilson(value, tasks.length) : null };
    });
}

function passAtLeastOnce(attempts: number, passed: number, k: number): number {
  if (attempts - passed < k) return 1;
  let allFail = 1;
  for (let each = attempts - passed + 1; each <= attempts; each += 1) allFail *= 1 - k / each;
  return 1 - allFail;
}

/** Wilson's score interval. Values between 0 and 1 are never spread further than those that are one of both, so it holds for their means as well. */
function wilson(share: number, samples: number): Interval {
  const z2 = Z * Z;
  const middle = (share + z2 / (2 * samples)) / (1 + z2 / samples);
  const half = (Z / (1 + z2 / samples)) * Math.sqrt((share * (1 - share)) / samples + z2 / (4 * samples * samples));
  return { low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
}

function student(value: number, samples: readonly number[]): Interval | null {
  if (samples.length < LEAST_SAMPLES) return null;
  const centre = mean(samples);
  const variance = samples.reduce((sum, sample) => sum + (sample - centre) ** 2, 0) / (samples.length - 1);
  const half = tQuantile(samples.length - 1) * Math.sqrt(variance / samples.length);
  return { low: value - half, high: value + half };
}

/** 97.5 % of Student's t, by its expansion around the normal distribution (Abramowitz and Stegun 26.7.5); within 0.3 % from 4 degrees of freedom on. */
function tQuantile(degrees: number): number {
  const g1 = (Z ** 3 + Z) / 4;
  const g2 = (5 * Z ** 5 + 16 * Z ** 3 + 3 * Z) / 96;
  const g3 = (3 * Z ** 7 + 19 * Z ** 5 + 17 * Z ** 3 - 15 * Z) / 384;
  return Z + g1 / degrees + g2 / degrees ** 2 + g3 / degrees ** 3;
}

function isPassed(reward: number): boolean {
  return reward >= PASS_REWARD;
}

function byTask(attempts: readonly Attempt[]): Readonly<Record<string, readonly number[]>> {
  const tasks: Record<string, number[]> = Object.create(null) as Record<string, number[]>;
  for (const { task, reward } of attempts) (tasks[task] ??= []).push(reward);
  return tasks;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
