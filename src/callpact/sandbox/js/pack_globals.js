// What libraries expect of a browser beyond globals.js, whose Buffer it builds on. One function
// expression, called once with `{ effect }` before the packs of a realm are evaluated; realms
// without packs never see it. What stands on globalThis already is left as it is. There is no
// source of randomness here and none must be added: it would repeat in every call.
({ effect }) => {
  const { Buffer, Uint8Array, ArrayBuffer } = globalThis;

  const provide = (name, value) => {
    if (name in globalThis) return;
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
  };

  provide('self', globalThis);

  const CODES = {
    InvalidCharacterError: 5,
    InvalidStateError: 11,
    SyntaxError: 12,
    AbortError: 20,
    TimeoutError: 23,
    DataCloneError: 25,
  };

  class DOMException extends Error {
    constructor(message = '', name = 'Error') {
      super(message);
      const own = { name: String(name), code: CODES[name] ?? 0 };
      for (const key of Object.keys(own)) Object.defineProperty(this, key, { value: own[key] });
    }
  }
  provide('DOMException', DOMException);

  // --- text and bytes ------------------------------------------------------------------------

  const bytesOf = (text) => new Uint8Array(Buffer.from(text, 'utf8'));

  const bufferOf = (data) => {
    if (data === undefined) return Buffer.from('');
    if (ArrayBuffer.isView(data)) return Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    if (data instanceof ArrayBuffer) return Buffer.from(data);
    throw new TypeError('TextDecoder.decode needs bytes');
  };

  const isSame = (one, other) =>
    one.length === other.length && one.every((byte, at) => byte === other[at]);

  provide('TextEncoder', class TextEncoder {
    get encoding() { return 'utf-8'; }

    encode(text = '') { return bytesOf(String(text)); }

    encodeInto(text, target) {
      let read = 0;
      let written = 0;
      for (const character of String(text)) {
        const bytes = bytesOf(character);
        if (written + bytes.length > target.length) break;
        target.set(bytes, written);
        written += bytes.length;
        read += character.length;
      }
      return { read, written };
    }
  });

  const UTF8 = ['utf-8', 'utf8', 'unicode-1-1-utf-8'];

  provide('TextDecoder', class TextDecoder {
    constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
      const name = String(label).trim().toLowerCase();
      if (!UTF8.includes(name)) throw new RangeError(`hooks read UTF-8 only, not '${name}'`);
      this.encoding = 'utf-8';
      this.fatal = Boolean(fatal);
      this.ignoreBOM = Boolean(ignoreBOM);
    }

    decode(data) {
      const bytes = bufferOf(data);
      const text = bytes.toString('utf8');
      if (this.fatal && text.includes('\ufffd') && !isSame(bytes, Buffer.from(text, 'utf8'))) {
        throw new TypeError('The encoded data was not valid for encoding utf-8');
      }
      return !this.ignoreBOM && text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
    }
  });

  const invalid = (words) => new DOMException(words, 'InvalidCharacterError');

  provide('btoa', (data) => {
    const text = String(data);
    if (/[^\0-\xff]/.test(text)) throw invalid('btoa takes characters up to U+00FF only');
    return Buffer.from(text, 'latin1').toString('base64');
  });

  provide('atob', (data) => {
    let text = String(data).replace(/[\t\n\f\r ]+/g, '');
    if (text.length % 4 === 0) text = text.replace(/={1,2}$/, '');
    if (text.length % 4 === 1 || /[^A-Za-z0-9+/]/.test(text)) throw invalid('atob takes base64 only');
    return Buffer.from(text, 'base64').toString('latin1');
  });

  // --- copies --------------------------------------------------------------------------------

  const kindOf = Object.getOwnPropertyDescriptor(
    Object.getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag,
  ).get;

  const uncloneable = (value) =>
    new DOMException(`a ${typeof value} cannot be cloned`, 'DataCloneError');

  const copyOf = (value, seen) => {
    const copied = (one) => clone(one, seen);
    if (value instanceof Date) return new Date(value.getTime());
    if (value instanceof RegExp) return new RegExp(value.source, value.flags);
    if (value instanceof ArrayBuffer) return value.slice(0);
    if (value instanceof DataView) {
      return new DataView(copied(value.buffer), value.byteOffset, value.byteLength);
    }
    if (ArrayBuffer.isView(value)) {
      const Kind = globalThis[kindOf.call(value)];
      return new Kind(copied(value.buffer), value.byteOffset, value.length);
    }
    return null;
  };

  const fill = (copy, value, seen) => {
    const copied = (one) => clone(one, seen);
    if (value instanceof Map) {
      for (const [key, item] of [...value]) copy.set(copied(key), copied(item));
      return copy;
    }
    if (value instanceof Set) {
      for (const item of [...value]) copy.add(copied(item));
      return copy;
    }
    if (value instanceof Error) {
      Object.setPrototypeOf(copy, Object.getPrototypeOf(value));
      Object.defineProperty(copy, 'message', { value: value.message, writable: true, configurable: true });
    }
    for (const key of Object.keys(value)) {
      const item = copied(value[key]);
      Object.defineProperty(copy, key, { value: item, writable: true, enumerable: true, configurable: true });
    }
    return copy;
  };

  const emptyOf = (value) => {
    if (value instanceof Map) return new Map();
    if (value instanceof Set) return new Set();
    return Array.isArray(value) ? new Array(value.length) : {};
  };

  const clone = (value, seen) => {
    if (typeof value === 'function' || typeof value === 'symbol') throw uncloneable(value);
    if (value === null || typeof value !== 'object') return value;
    if (seen.has(value)) return seen.get(value);
    const whole = copyOf(value, seen);
    const copy = whole ?? emptyOf(value);
    seen.set(value, copy);
    return whole ?? fill(copy, value, seen);
  };

  provide('structuredClone', (value) => clone(value, new Map()));

  // --- later ---------------------------------------------------------------------------------

  const guarded = (work) => {
    try {
      work();
    } catch (error) {
      globalThis.console?.error(`a callback threw: ${error}`);
    }
  };

  provide('queueMicrotask', (work) => {
    if (typeof work !== 'function') throw new TypeError('queueMicrotask needs a function');
    Promise.resolve().then(() => guarded(work));
  });

  // One `sleep` effect at a time, for the timer that is due first: a library that sets a hundred
  // timers asks the host no more often than one that sets a single one. What is due later than a
  // call may last is never asked for: it guards requests, and the host has limits of its own.
  const LONGEST_MS = 60_000;
  const timers = new Map();
  let last = 0;
  let asked = -Infinity;

  const fire = (due) => {
    if (asked === due) asked = -Infinity;
    const reached = Math.max(due, Date.now());
    const ready = [...timers].filter(([, timer]) => timer.due <= reached);
    for (const [id, timer] of ready.sort(([, a], [, b]) => a.due - b.due)) {
      if (!timers.has(id)) continue;
      if (timer.every === null) timers.delete(id);
      else timer.due = reached + timer.every;
      guarded(timer.work);
    }
    ask();
  };

  const ask = () => {
    const now = Date.now();
    let next = Infinity;
    for (const timer of timers.values()) next = Math.min(next, timer.due);
    // What was asked while the packs were loaded is never answered: its time has passed.
    const isAsked = asked > now && asked <= next;
    if (isAsked || next - now > LONGEST_MS) return;
    asked = next;
    effect('sleep', { ms: Math.max(0, next - now) }).then(() => fire(next), () => {});
  };

  const later = (work, ms, isRepeated, given) => {
    if (typeof work !== 'function') throw new TypeError('a timer needs a function');
    const delay = Math.max(1, Math.trunc(Number(ms)) || 0);
    const every = isRepeated ? delay : null;
    last += 1;
    timers.set(last, { due: Date.now() + delay, every, work: () => work(...given) });
    // In a moment: timers that are cleared in the same breath are never asked for.
    if (delay <= LONGEST_MS) Promise.resolve().then(ask);
    return last;
  };

  const forget = (id) => {
    timers.delete(id);
  };

  provide('setTimeout', (work, ms, ...given) => later(work, ms, false, given));
  provide('setInterval', (work, ms, ...given) => later(work, ms, true, given));
  provide('clearTimeout', forget);
  provide('clearInterval', forget);
}
