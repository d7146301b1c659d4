/** A global of browsers that Connect's declarations name and Node's do not have. */
type HeadersInit = NonNullable<ConstructorParameters<typeof Headers>[0]>;
