// Node's own modules as libraries find them in a pack. A few are small enough to be here; of every
// other one, and of what these lack, each member is a function that throws and says so. Nothing
// here makes random bytes, reads files or opens connections, and nothing must pretend to.
'use strict';

const UNASKED = ['__esModule', 'then', 'toJSON', 'default'];

const absent = (name) => {
  const members = new Map();
  const member = (key) => {
    if (!members.has(key)) {
      members.set(key, function () {
        throw new Error(`'${name}.${key}' does not exist in hooks: it is not in the pack`);
      });
    }
    return members.get(key);
  };
  const get = (target, key) =>
    typeof key === 'symbol' || UNASKED.includes(key) || key in target ? target[key] : member(key);
  // An heir of the proxy, because bundlers copy own members and keep the prototype.
  return Object.create(new Proxy({}, { get }));
};

// A function, not a class: older libraries call it on objects of their own.
function EventEmitter() {
  listenersOf(this);
}

const listenersOf = (emitter) => {
  if (!Object.hasOwn(emitter, '_listeners')) {
    Object.defineProperty(emitter, '_listeners', { value: new Map() });
  }
  return emitter._listeners;
};

const listen = (emitter, name, listener, isFirst) => {
  if (typeof listener !== 'function') throw new TypeError('a listener must be a function');
  const held = listenersOf(emitter).get(name) ?? [];
  listenersOf(emitter).set(name, isFirst ? [listener, ...held] : [...held, listener]);
  return emitter;
};

const onceOnly = (emitter, name, listener) => {
  if (typeof listener !== 'function') throw new TypeError('a listener must be a function');
  const wrapped = (...given) => {
    emitter.removeListener(name, wrapped);
    return listener.apply(emitter, given);
  };
  wrapped.listener = listener;
  return wrapped;
};

const methods = {
  on(name, listener) { return listen(this, name, listener, false); },
  prependListener(name, listener) { return listen(this, name, listener, true); },
  once(name, listener) { return this.on(name, onceOnly(this, name, listener)); },
  prependOnceListener(name, listener) {
    return this.prependListener(name, onceOnly(this, name, listener));
  },
  removeListener(name, listener) {
    const held = listenersOf(this).get(name) ?? [];
    const at = held.findLastIndex((one) => one === listener || one.listener === listener);
    if (at >= 0) listenersOf(this).set(name, held.toSpliced(at, 1));
    return this;
  },
  removeAllListeners(name) {
    if (name === undefined) listenersOf(this).clear();
    else listenersOf(this).delete(name);
    return this;
  },
  emit(name, ...given) {
    const held = listenersOf(this).get(name) ?? [];
    if (held.length === 0 && name === 'error') {
      throw given[0] instanceof Error ? given[0] : new Error(`Unhandled error. (${given[0]})`);
    }
    for (const listener of held) listener.apply(this, given);
    return held.length > 0;
  },
  rawListeners(name) { return [...(listenersOf(this).get(name) ?? [])]; },
  listeners(name) { return this.rawListeners(name).map((one) => one.listener ?? one); },
  listenerCount(name) { return this.rawListeners(name).length; },
  eventNames() {
    return [...listenersOf(this)].filter(([, held]) => held.length > 0).map(([name]) => name);
  },
  setMaxListeners() { return this; },
  getMaxListeners() { return Infinity; },
};
methods.addListener = methods.on;
methods.off = methods.removeListener;
for (const [name, value] of Object.entries(methods)) {
  Object.defineProperty(EventEmitter.prototype, name, { value, writable: true, configurable: true });
}
EventEmitter.EventEmitter = EventEmitter;
EventEmitter.defaultMaxListeners = Infinity;

const inherits = (Child, Parent) => {
  Child.super_ = Parent;
  Object.setPrototypeOf(Child.prototype, Parent.prototype);
};

const promisify = (work) =>
  function (...given) {
    return new Promise((resolve, reject) => {
      work.call(this, ...given, (error, value) => (error ? reject(error) : resolve(value)));
    });
  };

const present = {
  buffer: ({ Buffer, atob, btoa }) => ({ Buffer, atob, btoa }),
  process: ({ queueMicrotask }) => ({
    argv: [],
    browser: true,
    env: {},
    version: '',
    versions: {},
    nextTick: (work, ...given) => queueMicrotask(() => work(...given)),
  }),
  timers: ({ setTimeout, clearTimeout, setInterval, clearInterval }) => {
    const setImmediate = (work, ...given) => setTimeout(work, 0, ...given);
    const clearImmediate = clearTimeout;
    return { setTimeout, clearTimeout, setInterval, clearInterval, setImmediate, clearImmediate };
  },
  url: ({ URL, URLSearchParams }) => ({ URL, URLSearchParams }),
  util: ({ TextEncoder, TextDecoder }) => {
    const deprecate = (work) => work;
    return { inherits, promisify, deprecate, TextEncoder, TextDecoder };
  },
};

module.exports = (name) =>
  name === 'events' ? EventEmitter : Object.assign(absent(name), present[name]?.(globalThis));
