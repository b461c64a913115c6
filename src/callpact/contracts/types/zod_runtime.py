"""The functions that generated Zod schemas use for rules that Zod has no method for.

TypeScript text, put at the head of each generated module. Rules see the value as it was given:
Zod's own objects leave out the key `__proto__`, and copies of it would not be judged.
"""

RUNTIME = r"""
type Rule = { accepts: (value: any) => boolean; message: string };
type Judge = { safeParse: (value: unknown) => { success: boolean } };

const ok = (schema: Judge, value: unknown): boolean => schema.safeParse(value).success;
const own = (value: object, key: string): boolean => Object.prototype.hasOwnProperty.call(value, key);
const rule = (message: string, accepts: (value: any) => boolean): Rule => ({ accepts, message });
const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Any JSON value. */
const json = z.custom<{} | null>((value) => value !== undefined, "a value is required");

/** A value that the first schema and every further schema and rule accept. */
function all<T>(first: z.ZodType<T>, ...others: (z.ZodType | Rule)[]): z.ZodType<T> {
  const judge = z.unknown().superRefine((value, context) => {
    for (const part of [first, ...others]) {
      if ("accepts" in part) {
        if (!part.accepts(value)) context.addIssue({ code: "custom", message: part.message });
      } else {
        const issues = part.safeParse(value).error?.issues ?? [];
        for (const issue of issues) context.issues.push(issue as any);
      }
      if (context.issues.length) return;
    }
  });
  return judge as unknown as z.ZodType<T>;
}

/** A value that exactly one of the schemas accepts. */
function one<const T extends readonly z.ZodType[]>(...options: T): z.ZodType<z.infer<T[number]>> {
  return all(
    z.union(options as any) as z.ZodType<z.infer<T[number]>>,
    rule("several variants match", (value) => options.filter((each) => ok(each, value)).length === 1),
  );
}

const none = (schema: Judge): Rule => rule("the value is excluded", (value) => !ok(schema, value));
const cases = (test: Judge, then: Judge, other: Judge): Rule =>
  rule("the rule of its case is broken", (value) => ok(ok(test, value) ? then : other, value));

/** JSON text with sorted keys: equal for equal values. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const keys = Object.keys(value).sort();
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join()}}`;
}
function equal<const T>(wanted: T): z.ZodType<T> {
  return z.custom<T>((value) => value !== undefined && canonical(value) === canonical(wanted));
}

/** Lengths count code points, as JSON Schema does. */
const atLeast = (least: number) => (text: string): boolean => [...text].length >= least;
const atMost = (most: number) => (text: string): boolean => [...text].length <= most;

/** A number as digits and a power of ten. */
function digits(value: number): [bigint, number] {
  if (Number.isInteger(value)) return [BigInt(value), 0];
  const parts = /^(-?\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value))!;
  const fraction = parts[2] ?? "";
  return [BigInt(parts[1] + fraction), Number(parts[3] ?? 0) - fraction.length];
}
const multipleOf = (step: number) => (value: number): boolean => {
  const [a, i] = digits(value);
  const [b, j] = digits(step);
  const least = Math.min(i, j);
  return (a * 10n ** BigInt(i - least)) % (b * 10n ** BigInt(j - least)) === 0n;
};

const items = (least: number, most: number): Rule =>
  rule("wrong number of items", (value) => value.length >= least && value.length <= most);
const unique: Rule = rule(
  "items are repeated",
  (value) => new Set(value.map(canonical)).size === value.length,
);
const contains = (schema: Judge, least: number, most: number): Rule =>
  rule("wrong number of matching items", (value) => {
    const found = value.filter((item: unknown) => ok(schema, item)).length;
    return found >= least && found <= most;
  });

const member = (key: string, schema: Judge, required: boolean): Rule =>
  rule(`${key} is wrong or missing`, (value) => own(value, key) ? ok(schema, value[key]) : !required);
const matching = (pattern: RegExp, schema: Judge): Rule =>
  rule("the value of a key is wrong", (value) =>
    Object.keys(value).every((key) => !pattern.test(key) || ok(schema, value[key])));
const rest = (known: string[], patterns: RegExp[], schema: Judge): Rule =>
  rule("a further key is wrong", (value) =>
    Object.keys(value).every((key) =>
      known.includes(key) || patterns.some((each) => each.test(key)) || ok(schema, value[key])));
const size = (least: number, most: number): Rule =>
  rule("wrong number of keys", (value) => {
    const count = Object.keys(value).length;
    return count >= least && count <= most;
  });
const names = (schema: Judge): Rule =>
  rule("a key has a wrong name", (value) => Object.keys(value).every((key) => ok(schema, key)));
const together = (key: string, others: string[]): Rule =>
  rule(`${key} needs other keys`, (value) =>
    !own(value, key) || others.every((other) => own(value, other)));
const dependent = (key: string, schema: Judge): Rule =>
  rule(`the rule of ${key} is broken`, (value) => !own(value, key) || ok(schema, value));

const isDate = (text: string): boolean => {
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text)) return false;
  const [year, month, day] = text.split("-").map(Number) as [number, number, number];
  const leap = (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0;
  const days = [31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1] ?? 0;
  return day >= 1 && day <= days;
};
const isIpv4 = (text: string): boolean =>
  /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/.test(text);
const isUuid = (text: string): boolean =>
  /^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/.test(text);
""".lstrip()
