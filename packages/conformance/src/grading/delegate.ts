/** The object with some of its methods replaced. Methods that stay keep their own `this`: they may use private fields. */
export function delegate<T extends object>(target: T, replaced: Partial<T>): T {
  return new Proxy(target, {
    get(_, key) {
      if (Object.hasOwn(replaced, key)) return Reflect.get(replaced, key) as unknown;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}
