/** A question that is asked once for all who want to know, in the words of whoever asks first: an answer is kept, a failure is not. */
export function remembered<A extends readonly unknown[], T>(
  ask: (...words: A) => Promise<T>,
): (...words: A) => Promise<T> {
  let answer: Promise<T> | undefined;
  return (...words) => {
    answer ??= ask(...words).catch((error: unknown) => {
      answer = undefined;
      throw error;
    });
    return answer;
  };
}
