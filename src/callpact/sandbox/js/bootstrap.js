// The driver of a realm: loads a file's hooks, starts a hook, keeps what it asks of the host and
// what comes of it. One function expression; the host calls it once, before any other code, and
// keeps the functions that it returns by number. None of them is reachable from a hook.
//
// It is no boundary: every limit here is kept by the host as well, and the host believes nothing
// that comes out. It uses only intrinsics captured here, texts, and objects without prototypes,
// so that a hook which changes JSON, Promise or Array changes nothing in the way it is answered.
//
// Answers to the host are texts: one letter, the lines of the log as JSON, a line feed, JSON.
//   D data, F thrown, J not to be had as JSON (both name, message, stack), U nothing or a function,
//   P new effects, W only earlier effects are awaited, N nothing is awaited, X too many effects
(installGlobals, limits) => {
  const { apply, defineProperty, deleteProperty } = Reflect;
  const { freeze, getOwnPropertyNames, keys, setPrototypeOf } = Object;
  const { stringify } = JSON;
  const { isArray } = Array;
  const { Promise, TypeError, String } = globalThis;
  const { slice, toWellFormed } = String.prototype;
  const maxEffects = limits.effects;
  const maxLines = limits.log_lines;
  const maxCharacters = limits.log_characters;

  const libraries = { __proto__: null };
  let hooks = { __proto__: null };
  let waiting = { __proto__: null };
  let asked = '';
  let count = 0;
  let lines = '';
  let lineCount = 0;
  let characters = 0;
  let outcome = null;

  // Half of a surrogate pair, which a cut may leave, is no text for the host.
  const cut = (text, length) =>
    apply(toWellFormed, text.length > length ? apply(slice, text, [0, length]) : text, []);

  // A text for any value at all; getters and conversions of a hook may throw.
  const textOf = (read, length) => {
    try {
      const value = read();
      if (value === undefined) return '';
      return cut(typeof value === 'string' ? value : String(value), length);
    } catch {
      return '';
    }
  };

  const describe = (thrown) => {
    const isObject = thrown !== null && (typeof thrown === 'object' || typeof thrown === 'function');
    const part = (name, length) => (isObject ? textOf(() => thrown[name], length) : '');
    const name = part('name', 100) || 'Error';
    const message =
      part('message', 2000) || (isObject ? part('code', 100) : textOf(() => thrown, 2000));
    return stringify({ __proto__: null, name, message, stack: part('stack', 4000) });
  };

  const failed = (name, message) =>
    `F${stringify({ __proto__: null, name, message, stack: '' })}`;

  const effect = (kind, data) =>
    new Promise((resolve, reject) => {
      count += 1;
      if (count > maxEffects) return;
      const text = stringify(data) ?? 'null';
      const refusal = new TypeError(''); // made here, where its stack shows who asked
      waiting[count] = { __proto__: null, resolve, reject, refusal };
      asked += `${asked && ','}{"id":${count},"kind":${stringify(String(kind))},"data":${text}}`;
    });

  const log = (level, text) => {
    const room = maxCharacters - characters;
    if (lineCount >= maxLines || room <= 0) return;
    const line = cut(String(text), room);
    lineCount += 1;
    characters += line.length;
    lines += `${lines && ','}[${stringify(cut(String(level), 20))},${stringify(line)}]`;
  };

  // What ECMAScript does not have, or what lets code see the host's memory or time more closely.
  const surplus = [
    'SharedArrayBuffer', 'Atomics', 'WebAssembly', 'WeakRef', 'FinalizationRegistry',
    'DOMException', 'atob', 'btoa', 'performance', 'queueMicrotask',
  ];
  const native = surplus.map((name) => globalThis[name]);
  installGlobals({ effect, log });
  surplus.forEach((name, at) => {
    if (globalThis[name] === native[at]) delete globalThis[name];
  });

  const freezeDeeply = (root) => {
    const rest = setPrototypeOf([root], null);
    while (rest.length) {
      const value = rest[rest.length - 1];
      rest.length -= 1;
      if (value === null || typeof value !== 'object') continue;
      freeze(value);
      const names = getOwnPropertyNames(value);
      for (let at = 0; at < names.length; at += 1) rest[rest.length] = value[names[at]];
    }
    return root;
  };

  // Reads each hook once, so that a getter cannot show the host one thing and run another.
  const collect = (made) => {
    let shape = '';
    const tools = keys(made);
    for (let at = 0; at < tools.length; at += 1) {
      const owner = made[tools[at]];
      if (owner === null || typeof owner !== 'object') continue;
      const table = { __proto__: null };
      let kinds = '';
      const names = keys(owner);
      for (let index = 0; index < names.length; index += 1) {
        const hook = owner[names[index]];
        if (typeof hook !== 'function') continue;
        table[names[index]] = { __proto__: null, owner, hook };
        kinds += `${kinds && ','}${stringify(names[index])}`;
      }
      hooks[tools[at]] = table;
      shape += `${shape && ','}${stringify(tools[at])}:[${kinds}]`;
    }
    return `{${shape}}`;
  };

  const forget = () => {
    waiting = { __proto__: null };
    asked = lines = '';
    count = lineCount = characters = 0;
    outcome = null;
  };

  const load = (module, lists) => {
    try {
      const { handlers } = module;
      if (handlers === undefined) return failed('NoHandlers', "the file exports no 'handlers'");
      if (typeof handlers !== 'function') {
        return failed('NoFactory', `'handlers' must be a function, got ${typeof handlers}`);
      }
      const made = handlers({ sharedLists: freezeDeeply(lists), libraries: freeze(libraries) });
      if (made === null || typeof made !== 'object' || isArray(made)) {
        const kind = made === null ? 'null' : isArray(made) ? 'an array' : typeof made;
        return failed('NoHooks', `'handlers' must return an object of tools, got ${kind}`);
      }
      if (typeof made.then === 'function') {
        return failed('NoHooks', "'handlers' must not be async: it returned a promise");
      }
      const shape = collect(made);
      const main = stringify(module.main) ?? 'null';
      return `D${shape}\n${main}`;
    } catch (thrown) {
      return `F${describe(thrown)}`;
    }
  };

  const run = async (entry, argument) => {
    let value;
    try {
      value = await apply(entry.hook, entry.owner, [argument]);
    } catch (thrown) {
      outcome = ['F', describe(thrown)];
      return;
    }
    try {
      const text = stringify(value);
      outcome = text === undefined ? ['U', typeof value] : ['D', text];
    } catch (thrown) {
      outcome = ['J', describe(thrown)];
    }
  };

  // Draws random bytes from a seed, where the module `crypto` is there.
  let reseed = null;

  const start = (request) => {
    forget();
    if (reseed !== null) reseed(request[3]);
    run(hooks[request[0]][request[1]], request[2]);
  };

  const take = () => {
    let letter = 'N';
    let body = '';
    if (count > maxEffects) {
      letter = 'X';
    } else if (outcome !== null) {
      letter = outcome[0];
      body = outcome[1];
    } else if (asked) {
      letter = 'P';
      body = `[${asked}]`;
    } else {
      for (const _ in waiting) letter = 'W';
    }
    const answer = `${letter}[${lines}]\n${body}`;
    asked = lines = '';
    return answer;
  };

  const settle = (replies) => {
    for (let at = 0; at < replies.length; at += 1) {
      const reply = replies[at];
      const promise = waiting[reply[0]];
      if (promise === undefined) continue;
      delete waiting[reply[0]];
      if (reply[1]) {
        promise.resolve(reply[2]);
      } else {
        promise.refusal.message = reply[2];
        promise.reject(promise.refusal);
      }
    }
  };

  const addGlobals = (install) => {
    install({ effect });
  };

  // A pack's script leaves its library in this global (packs.py).
  const addLibrary = (name) => {
    libraries[name] = globalThis.__callpact_pack;
    globalThis.__callpact_pack = undefined;
    deleteProperty(globalThis, '__callpact_pack'); // which a variable does not allow
  };

  const define = (name, value) =>
    defineProperty(globalThis, name, { value, writable: true, configurable: true });

  // Modules of Node that were written for hooks (modules.py): libraries, and what `import( … )`
  // of a file gives, which the host has renamed to a function.
  const addModule = (name, install, limits) => {
    const absent = (what) => {
      throw new Error(`${name} in hooks has no ${what}; it has ${getOwnPropertyNames(made.members).join(', ')}`);
    };
    const made = install({ absent, limits });
    const module = { __proto__: null, ...made.members };
    made.others.split(' ').forEach((other) => {
      const [first, second] = other.split('.');
      const missing = () => absent(other);
      if (second === undefined) module[first] = missing;
      else (module[first] ??= { __proto__: null })[second] = missing;
    });
    freeze(module);
    libraries[name] = libraries[`node:${name}`] = module;
    reseed = made.reseed ?? reseed;
    made.globals?.forEach((global) => define(global, module[global]));
    define('_node_', (specifier) =>
      Promise.resolve(freeze({ __proto__: null, ...libraries[specifier], default: libraries[specifier] })));
  };

  const addIntl = (install, zones) => {
    define('Intl', install({ zones }));
  };

  return {
    __proto__: null, load, start, take, settle, describe, addGlobals, addLibrary, addModule, addIntl,
  };
}
