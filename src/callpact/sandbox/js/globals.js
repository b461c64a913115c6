// The globals that hooks find besides ECMAScript's own: URL, URLSearchParams, Buffer, Headers,
// Response, fetch, AbortSignal, AbortController and console. One function expression; the
// bootstrap calls it once per realm, before any code of a schema runs, and while `atob` and `btoa`
// are there. `effect(kind, data)` promises the host's reply, `log(level, text)` keeps a line.
//
// It is no boundary: a hook may break these objects, for itself. What goes to the host is made of
// intrinsics captured here, of strings and of objects without prototypes, so a changed prototype
// changes nothing in it. This engine joins template literals with String.prototype.concat: they
// stand in error messages only. Loops over single characters are slow in it: long texts pass
// through native functions, in linear time.
({ effect, log }) => {
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const { create, defineProperty, keys: keysOf, setPrototypeOf } = Object;
  const { apply, ownKeys } = Reflect;
  const { isArray } = Array;
  const { isInteger } = Number;
  const { trunc } = Math;
  const { parse: parseJson, stringify } = JSON;
  const { String } = globalThis;
  const { fromCharCode } = String;
  const { iterator: ITERATOR, toStringTag: TAG } = Symbol;
  const { atob, btoa, encodeURIComponent, decodeURIComponent, escape, unescape } = globalThis;
  const { parseInt, ArrayBuffer, DataView, Uint8Array, TypeError, RangeError, Error } = globalThis;
  const text = String.prototype;
  const charCodeAt = uncurry(text.charCodeAt);
  const endsWith = uncurry(text.endsWith);
  const indexOf = uncurry(text.indexOf);
  const lastIndexOf = uncurry(text.lastIndexOf);
  const lower = uncurry(text.toLowerCase);
  const replaceAll = uncurry(text.replaceAll);
  const slice = uncurry(text.slice);
  const split = uncurry(text.split);
  const startsWith = uncurry(text.startsWith);
  const upper = uncurry(text.toUpperCase);
  const wellFormed = uncurry(text.toWellFormed);
  const join = uncurry(Array.prototype.join);
  const pop = uncurry(Array.prototype.pop);
  const push = uncurry(Array.prototype.push);
  const sort = uncurry(Array.prototype.sort);
  const exec = uncurry(RegExp.prototype.exec);
  const isEnumerable = uncurry(Object.prototype.propertyIsEnumerable);
  const errorTextOf = uncurry(Error.prototype.toString);
  const symbolTextOf = uncurry(Symbol.prototype.toString);
  const functionTextOf = uncurry(Function.prototype.toString);
  const isView = ArrayBuffer.isView;
  const getter = (owner, name) => uncurry(Object.getOwnPropertyDescriptor(owner, name).get);
  const typedArray = Object.getPrototypeOf(Uint8Array.prototype);
  const kindOf = getter(typedArray, TAG);
  const memoryOf = getter(typedArray, 'buffer');
  const startOf = getter(typedArray, 'byteOffset');
  const sizeOf = getter(typedArray, 'byteLength');
  const memorySizeOf = getter(ArrayBuffer.prototype, 'byteLength');
  const viewMemoryOf = getter(DataView.prototype, 'buffer');
  const viewStartOf = getter(DataView.prototype, 'byteOffset');
  const viewSizeOf = getter(DataView.prototype, 'byteLength');
  const copyInto = uncurry(typedArray.set);
  const fillWith = uncurry(typedArray.fill);
  const part = uncurry(typedArray.subarray);
  const toBase64 = uncurry(Uint8Array.prototype.toBase64);
  const toHex = uncurry(Uint8Array.prototype.toHex);
  const fromBase64 = Uint8Array.fromBase64.bind(Uint8Array);
  const fromHex = Uint8Array.fromHex.bind(Uint8Array);
  const isBytes = (value) => kindOf(value) === 'Uint8Array';
  const isFunction = (value) => typeof value === 'function';
  const isObject = (value) => (typeof value === 'object' && value !== null) || isFunction(value);
  const isMemory = (value) => {
    if (!isObject(value)) return false;
    try {
      memorySizeOf(value);
      return true;
    } catch {
      return false;
    }
  };

  // What WebIDL calls a USVString: lone surrogates become U+FFFD, symbols throw.
  const stringOf = (value) => {
    if (typeof value === 'symbol') throw new TypeError('Cannot convert a Symbol value to a string');
    return String(value);
  };
  const usv = (value) => wellFormed(stringOf(value));
  const failure = (code, words, Kind = TypeError) =>
    defineProperty(new Kind(words), 'code', { value: code, writable: true, configurable: true });
  const need = (wanted, given, words) => {
    if (given < wanted) throw new TypeError(`${words} must be specified`);
  };
  const needFunction = (value) => {
    if (!isFunction(value)) {
      throw failure('ERR_INVALID_ARG_TYPE', 'The "callback" argument must be of type function.');
    }
  };
  const install = (name, value) =>
    defineProperty(globalThis, name, { value, writable: true, configurable: true });
  const tag = (owner, name) =>
    defineProperty(owner.prototype, TAG, { value: name, configurable: true });

  // --- bytes and texts -----------------------------------------------------------------------

  const bytesOfLatin = (latin) => fromBase64(btoa(latin));
  const latinOfBytes = (bytes) => atob(toBase64(bytes));
  const utf8AsLatin = (string) => unescape(encodeURIComponent(wellFormed(string)));
  const bytesOfText = (string) => bytesOfLatin(utf8AsLatin(string));
  const NOT_ASCII = /[^\0-\x7f]/;

  // UTF-8 decoding as the Encoding Standard has it: each longest prefix of a well-formed sequence
  // that is not completed becomes one U+FFFD.
  const decodeLossy = (latin) => {
    const parts = [];
    let plain = 0;
    for (let i = 0; i < latin.length; ) {
      const first = charCodeAt(latin, i);
      if (first < 0x80) {
        i += 1;
        continue;
      }
      push(parts, slice(latin, plain, i));
      i += 1;
      let wanted = 0;
      let low = 0x80;
      let high = 0xbf;
      let point = 0xfffd;
      if (first >= 0xc2 && first <= 0xdf) {
        wanted = 1;
        point = first & 0x1f;
      } else if (first >= 0xe0 && first <= 0xef) {
        wanted = 2;
        point = first & 0x0f;
        if (first === 0xe0) low = 0xa0;
        if (first === 0xed) high = 0x9f;
      } else if (first >= 0xf0 && first <= 0xf4) {
        wanted = 3;
        point = first & 0x07;
        if (first === 0xf0) low = 0x90;
        if (first === 0xf4) high = 0x8f;
      }
      for (; wanted > 0; wanted -= 1) {
        const next = i < latin.length ? charCodeAt(latin, i) : 0;
        if (next < low || next > high) {
          point = 0xfffd;
          break;
        }
        low = 0x80;
        high = 0xbf;
        point = (point << 6) | (next & 0x3f);
        i += 1;
      }
      if (point < 0x10000) push(parts, fromCharCode(point));
      else push(parts, fromCharCode(0xd7c0 + (point >> 10), 0xdc00 + (point & 0x3ff)));
      plain = i;
    }
    push(parts, slice(latin, plain));
    return join(parts, '');
  };

  const textOfLatin = (latin) => {
    if (exec(NOT_ASCII, latin) === null) return latin;
    try {
      return decodeURIComponent(escape(latin));
    } catch {
      return decodeLossy(latin);
    }
  };
  const textOfBytes = (bytes) => textOfLatin(latinOfBytes(bytes));
  const withoutMark = (string) => (string[0] === '\ufeff' ? slice(string, 1) : string);

  const copyOf = (bytes) => {
    const copy = new Uint8Array(sizeOf(bytes));
    copyInto(copy, bytes);
    return copy;
  };

  // The bytes of an ArrayBuffer or of any view, without copying; null for anything else.
  const bytesOf = (value) => {
    if (isBytes(value)) return value;
    if (isView(value)) {
      return kindOf(value) === undefined
        ? new Uint8Array(viewMemoryOf(value), viewStartOf(value), viewSizeOf(value))
        : new Uint8Array(memoryOf(value), startOf(value), sizeOf(value));
    }
    return isMemory(value) ? new Uint8Array(value) : null;
  };

  // Every match of a regular expression with the flag g, rewritten.
  const rewrite = (string, pattern, written) => {
    pattern.lastIndex = 0;
    let found = exec(pattern, string);
    if (found === null) return string;
    const parts = [];
    let done = 0;
    for (; found !== null; found = exec(pattern, string)) {
      push(parts, slice(string, done, found.index), written(found[0]));
      done = pattern.lastIndex;
    }
    push(parts, slice(string, done));
    return join(parts, '');
  };

  // --- percent-encoding ----------------------------------------------------------------------

  // The percent-encode sets of the URL Standard, as runs of what is in the set. `%` is in none.
  const IN_C0 = /[^ -~]+/g;
  const IN_FRAGMENT = /[^!#-;=?-_a-~]+/g;
  const IN_QUERY = /[^!$-;=?-~]+/g;
  const IN_SPECIAL_QUERY = /[^!$-&(-;=?-~]+/g;
  const IN_PATH = /[^!$-;=@-\]_a-z|~]+/g;
  const IN_USERINFO = /[^!$-.0-9A-Z_a-z~]+/g;
  const FORM_LEFT_OVER = /%20|[!'()~]/g;

  // All that is in a set is encoded by encodeURIComponent too, but for the apostrophe. No run ends
  // inside a surrogate pair, as no set leaves a half of one out.
  const encodeRun = (run) => replaceAll(encodeURIComponent(run), "'", '%27');
  const encode = (string, set) => rewrite(string, set, encodeRun);
  const encodeForm = (string) =>
    rewrite(encodeURIComponent(string), FORM_LEFT_OVER, (found) =>
      found === '%20' ? '+' : '%' + upper(toHex(bytesOfLatin(found))),
    );

  const HEX_PAIR = /^[0-9A-Fa-f]{2}/;
  const NO_ESCAPE = /%(?![0-9A-Fa-f]{2})/;
  const decode = (string) => {
    if (indexOf(string, '%') < 0) return string;
    if (exec(NO_ESCAPE, string) === null) {
      try {
        return decodeURIComponent(string);
      } catch {
        // Not UTF-8: the standard wants replacement characters.
      }
    }
    const pieces = split(utf8AsLatin(string), '%');
    for (let i = 1; i < pieces.length; i += 1) {
      const piece = pieces[i];
      pieces[i] =
        exec(HEX_PAIR, piece) === null
          ? '%' + piece
          : fromCharCode(parseInt(slice(piece, 0, 2), 16)) + slice(piece, 2);
    }
    return textOfLatin(join(pieces, ''));
  };

  // --- hosts ---------------------------------------------------------------------------------

  const FORBIDDEN_IN_HOST = /[\0\t\n\r #/:<>?@[\\\]^|]/;
  const FORBIDDEN_IN_DOMAIN = /[\0- #%/:<>?@[\\\]^|\x7f]/;
  const DIGITS = /^[0-9]+$/;
  const OCTAL = /^[0-7]*$/;
  const HEX = /^[0-9a-f]*$/;

  const withoutZeros = (digits) => slice(digits, exec(/^0*/, digits)[0].length);

  // A part of an IPv4 address; NaN if it is no number.
  const parseIpv4Part = (written) => {
    let digits = written;
    let base = 10;
    let allowed = DIGITS;
    if (startsWith(digits, '0x')) {
      digits = slice(digits, 2);
      base = 16;
      allowed = HEX;
    } else if (digits.length > 1 && digits[0] === '0') {
      digits = slice(digits, 1);
      base = 8;
      allowed = OCTAL;
    }
    if (written === '' || exec(allowed, digits) === null) return NaN;
    const counted = withoutZeros(digits);
    if (counted === '') return 0;
    return counted.length > 12 ? Infinity : parseInt(counted, base);
  };

  // Null if the domain does not end in a number, and so is a name; else its parts.
  const ipv4Parts = (domain) => {
    const bare = endsWith(domain, '.') ? slice(domain, 0, -1) : domain;
    const last = slice(bare, lastIndexOf(bare, '.') + 1);
    const isNumber = exec(DIGITS, last) !== null || parseIpv4Part(last) >= 0;
    return isNumber ? split(bare, '.') : null;
  };

  const parseIpv4 = (parts) => {
    if (parts.length > 4) return null;
    let address = 0;
    for (let i = 0; i < parts.length; i += 1) {
      const number = parseIpv4Part(parts[i]);
      const isLast = i === parts.length - 1;
      const room = isLast ? 256 ** (5 - parts.length) : 256;
      if (!(number < room)) return null;
      address += isLast ? number : number * 256 ** (3 - i);
    }
    const bytes = [address >>> 24, (address >>> 16) & 255, (address >>> 8) & 255, address & 255];
    return join(bytes, '.');
  };

  const BYTE_IN_IPV6 = /^(?:0|[1-9][0-9]{0,2})$/;

  // The 16-bit pieces of one side of `::`; null if they are none. An IPv4 address may stand last.
  const ipv6Pieces = (written, mayEndInIpv4) => {
    const pieces = [];
    if (written === '') return pieces;
    const fields = split(written, ':');
    for (let i = 0; i < fields.length; i += 1) {
      const field = lower(fields[i]);
      const bytes = split(field, '.');
      if (bytes.length === 4 && mayEndInIpv4 && i === fields.length - 1) {
        for (let n = 0; n < 4; n += 1) {
          if (exec(BYTE_IN_IPV6, bytes[n]) === null || bytes[n] > 255) return null;
        }
        push(pieces, bytes[0] * 256 + +bytes[1], bytes[2] * 256 + +bytes[3]);
      } else {
        if (field === '' || field.length > 4 || exec(HEX, field) === null) return null;
        push(pieces, parseInt(field, 16));
      }
    }
    return pieces;
  };

  const parseIpv6 = (written) => {
    // The longest form is six pieces of four digits and an IPv4 address.
    if (written.length > 45) return null;
    const gap = indexOf(written, '::');
    const left = ipv6Pieces(gap < 0 ? written : slice(written, 0, gap), gap < 0);
    const right = gap < 0 ? [] : ipv6Pieces(slice(written, gap + 2), true);
    if (left === null || right === null) return null;
    const missing = 8 - left.length - right.length;
    if (gap < 0 ? missing !== 0 : missing < 1) return null;
    for (let i = 0; i < missing; i += 1) push(left, 0);
    for (let i = 0; i < right.length; i += 1) push(left, right[i]);
    return serializeIpv6(left);
  };

  // The first longest run of two or more zero pieces is written `::`.
  const serializeIpv6 = (pieces) => {
    let best = 8;
    let length = 1;
    for (let i = 0; i < 8; i += 1) {
      let end = i;
      while (end < 8 && pieces[end] === 0) end += 1;
      if (end - i > length) {
        best = i;
        length = end - i;
      }
    }
    const written = (from, to) => {
      const fields = [];
      for (let i = from; i < to; i += 1) push(fields, toHexNumber(pieces[i]));
      return join(fields, ':');
    };
    return best === 8
      ? '[' + written(0, 8) + ']'
      : '[' + written(0, best) + '::' + written(best + length, 8) + ']';
  };
  const numberTextOf = uncurry(Number.prototype.toString);
  const toHexNumber = (number) => numberTextOf(number, 16);

  // The host as it is serialized; null if it is no host.
  const parseHost = (written, isOpaque) => {
    if (written[0] === '[') {
      return endsWith(written, ']') ? parseIpv6(slice(written, 1, -1)) : null;
    }
    if (isOpaque) return exec(FORBIDDEN_IN_HOST, written) ? null : encode(written, IN_C0);
    const domain = decode(written);
    if (domain === '' || exec(FORBIDDEN_IN_DOMAIN, domain) !== null) return null;
    if (exec(NOT_ASCII, domain) !== null) {
      // IDNA needs tables of Unicode, which are not here: nothing is guessed.
      throw failure(
        'ERR_INVALID_URL',
        `Invalid URL: the host '${slice(domain, 0, 100)}' is not ASCII; ` +
          "names in other scripts are not supported here, write its 'xn--' form",
      );
    }
    const ascii = lower(domain);
    const parts = ipv4Parts(ascii);
    return parts === null ? ascii : parseIpv4(parts);
  };

  // --- the URL parser ------------------------------------------------------------------------

  const PORTS = { __proto__: null, ftp: 21, file: null, http: 80, https: 443, ws: 80, wss: 443 };
  const isSpecial = (scheme) => scheme in PORTS;
  const SCHEME = /^([A-Za-z][A-Za-z0-9+.-]*):/;
  const LEADING_BLANKS = /^[\0- ]*/;
  const BREAK = /[\t\n\r]+/g;
  const SLASH = /\//;
  const ANY_SLASH = /[/\\]/;
  const LEADING_SLASHES = /^[/\\]*/;
  const DOT_SEGMENT = /(?:^|\/)(?:\.|%2[eE]){1,2}(?:\/|$)/;
  const DOTS = { __proto__: null, '.': 1, '%2e': 1 };
  const DOUBLE_DOTS = { __proto__: null, '..': 1, '.%2e': 1, '%2e.': 1, '%2e%2e': 1 };
  const DRIVE = /^[A-Za-z][:|]$/;
  const DRIVE_FIRST = /^[A-Za-z][:|](?:[/\\]|$)/;
  const NORMAL_DRIVE = /^\/[A-Za-z]:(?=\/|$)/;

  const withoutBreaks = (string) => rewrite(string, BREAK, () => '');
  const trim = (string) => {
    let end = string.length;
    while (end > 0 && charCodeAt(string, end - 1) <= 0x20) end -= 1;
    const cut = slice(string, 0, end);
    return slice(cut, exec(LEADING_BLANKS, cut)[0].length);
  };

  // A URL record; a path that is not opaque is kept as text, `/` before each of its segments.
  const blank = (scheme) => ({
    __proto__: null,
    scheme,
    username: '',
    password: '',
    host: null,
    port: null,
    path: '',
    isOpaque: false,
    query: null,
    fragment: null,
  });

  // `?` and `#` end the host and the path in every state of the standard's machine, so that the
  // three are cut apart first.
  const cut = (string) => {
    const hash = indexOf(string, '#');
    const fragment = hash < 0 ? null : slice(string, hash + 1);
    const before = hash < 0 ? string : slice(string, 0, hash);
    const mark = indexOf(before, '?');
    const query = mark < 0 ? null : slice(before, mark + 1);
    return { __proto__: null, rest: mark < 0 ? before : slice(before, 0, mark), query, fragment };
  };

  const encodeQuery = (scheme, query) =>
    encode(query, isSpecial(scheme) ? IN_SPECIAL_QUERY : IN_QUERY);

  const finish = (url, parts, path) => {
    url.path = path;
    if (parts.query !== null) url.query = encodeQuery(url.scheme, parts.query);
    if (parts.fragment !== null) url.fragment = encode(parts.fragment, IN_FRAGMENT);
    return url;
  };

  const inherit = (url, base) => {
    url.username = base.username;
    url.password = base.password;
    url.host = base.host;
    url.port = base.port;
  };

  // A path without its last segment; a drive letter of a file stays.
  const shorten = (scheme, path) => {
    if (scheme === 'file' && path.length === 3 && exec(NORMAL_DRIVE, path)) return path;
    return slice(path, 0, lastIndexOf(path, '/') < 0 ? 0 : lastIndexOf(path, '/'));
  };

  // The path state: segments appended to a path, dot segments resolved.
  const appendPath = (scheme, path, written) => {
    const isFile = scheme === 'file';
    const slashed = isSpecial(scheme) ? replaceAll(written, '\\', '/') : written;
    const added = encode(slashed, IN_PATH);
    if (!isFile && exec(DOT_SEGMENT, added) === null) return path + '/' + added;
    const kept = path === '' ? [] : split(slice(path, 1), '/');
    const segments = split(added, '/');
    for (let i = 0; i < segments.length; i += 1) {
      const segment = segments[i];
      const dots = segment.length > 6 ? segment : lower(segment);
      const isLast = i === segments.length - 1;
      if (dots in DOUBLE_DOTS) {
        const isDrive = isFile && kept.length === 1 && exec(/^[A-Za-z]:$/, kept[0]) !== null;
        if (!isDrive) pop(kept);
        if (isLast) push(kept, '');
      } else if (dots in DOTS) {
        if (isLast) push(kept, '');
      } else if (isFile && kept.length === 0 && exec(DRIVE, segment) !== null) {
        push(kept, segment[0] + ':');
      } else {
        push(kept, segment);
      }
    }
    return kept.length === 0 ? '' : '/' + join(kept, '/');
  };

  // The path start state.
  const startPath = (scheme, written) => {
    const special = isSpecial(scheme);
    if (written === '' && !special) return '';
    const isSlashed = written[0] === '/' || (special && written[0] === '\\');
    return appendPath(scheme, '', isSlashed ? slice(written, 1) : written);
  };

  // Where the colon before a port stands; colons inside of brackets are a host's.
  const portColon = (string) => {
    let colon = indexOf(string, ':');
    for (let from = 0; colon >= 0; ) {
      const bracket = indexOf(string, '[', from);
      if (bracket < 0 || colon < bracket) return colon;
      from = indexOf(string, ']', bracket) + 1;
      if (from === 0) return -1;
      if (colon < from) colon = indexOf(string, ':', from);
    }
    return -1;
  };

  // A port; NaN if there is none or it is out of range.
  const parsePort = (digits) => {
    if (exec(DIGITS, digits) === null) return NaN;
    const counted = withoutZeros(digits);
    const port = counted.length > 5 ? Infinity : +counted;
    return port > 65535 ? NaN : port;
  };

  const parseAuthority = (url, parts, rest) => {
    const special = isSpecial(url.scheme);
    const slash = exec(special ? ANY_SLASH : SLASH, rest);
    const end = slash === null ? rest.length : slash.index;
    let host = slice(rest, 0, end);
    const at = lastIndexOf(host, '@');
    if (at >= 0) {
      const userinfo = slice(host, 0, at);
      const colon = indexOf(userinfo, ':');
      url.username = encode(colon < 0 ? userinfo : slice(userinfo, 0, colon), IN_USERINFO);
      url.password = colon < 0 ? '' : encode(slice(userinfo, colon + 1), IN_USERINFO);
      host = slice(host, at + 1);
      if (host === '') return null;
    }
    const colon = portColon(host);
    if (colon >= 0) {
      const digits = slice(host, colon + 1);
      if (digits !== '') {
        const port = parsePort(digits);
        if (port !== port) return null;
        url.port = port === PORTS[url.scheme] ? null : port;
      }
      host = slice(host, 0, colon);
    }
    if (host === '' && (special || colon >= 0)) return null;
    url.host = parseHost(host, !special);
    if (url.host === null) return null;
    return finish(url, parts, startPath(url.scheme, slice(rest, end)));
  };

  // The relative state and the relative slash state.
  const parseRelative = (parts, base) => {
    const url = blank(base.scheme);
    const special = isSpecial(base.scheme);
    const { rest } = parts;
    const isSlash = (letter) => letter === '/' || (special && letter === '\\');
    if (isSlash(rest[0]) && isSlash(rest[1])) {
      const slashes = special ? exec(LEADING_SLASHES, rest)[0].length : 2;
      return parseAuthority(url, parts, slice(rest, slashes));
    }
    inherit(url, base);
    if (isSlash(rest[0])) return finish(url, parts, appendPath(url.scheme, '', slice(rest, 1)));
    if (rest === '') {
      url.query = base.query;
      return finish(url, parts, base.path);
    }
    return finish(url, parts, appendPath(url.scheme, shorten(url.scheme, base.path), rest));
  };

  // The file, file slash and file host states; `base` is null unless it is a file too.
  const parseFile = (parts, base) => {
    const url = blank('file');
    url.host = '';
    const { rest } = parts;
    const isSlash = (letter) => letter === '/' || letter === '\\';
    if (isSlash(rest[0]) && isSlash(rest[1])) {
      const after = slice(rest, 2);
      const slash = exec(ANY_SLASH, after);
      const end = slash === null ? after.length : slash.index;
      const host = slice(after, 0, end);
      if (exec(DRIVE, host) !== null) return finish(url, parts, startPath('file', after));
      if (host !== '') {
        url.host = parseHost(host, false);
        if (url.host === null) return null;
        if (url.host === 'localhost') url.host = '';
      }
      return finish(url, parts, startPath('file', slice(after, end)));
    }
    if (base !== null) url.host = base.host;
    if (isSlash(rest[0])) {
      const after = slice(rest, 1);
      const drive = base === null ? null : exec(NORMAL_DRIVE, base.path);
      const keepsDrive = drive !== null && exec(DRIVE_FIRST, after) === null;
      return finish(url, parts, appendPath('file', keepsDrive ? drive[0] : '', after));
    }
    if (base === null) return finish(url, parts, appendPath('file', '', rest));
    if (rest === '') {
      url.query = base.query;
      return finish(url, parts, base.path);
    }
    const isAbsolute = exec(DRIVE_FIRST, rest) !== null;
    const from = isAbsolute ? '' : shorten('file', base.path);
    return finish(url, parts, appendPath('file', from, rest));
  };

  // The basic URL parser; null for what is no URL.
  const parseUrl = (input, base) => {
    const string = withoutBreaks(trim(input));
    const found = exec(SCHEME, string);
    if (found === null) {
      if (base === null) return null;
      const parts = cut(string);
      if (base.isOpaque) {
        if (parts.rest !== '' || parts.query !== null || parts.fragment === null) return null;
        const url = blank(base.scheme);
        url.isOpaque = true;
        url.query = base.query;
        return finish(url, parts, base.path);
      }
      return base.scheme === 'file' ? parseFile(parts, base) : parseRelative(parts, base);
    }
    const scheme = lower(found[1]);
    const parts = cut(slice(string, found[0].length));
    const { rest } = parts;
    if (scheme === 'file') {
      return parseFile(parts, base !== null && base.scheme === 'file' ? base : null);
    }
    const url = blank(scheme);
    if (isSpecial(scheme)) {
      if (base !== null && base.scheme === scheme && !startsWith(rest, '//')) {
        return parseRelative(parts, base);
      }
      return parseAuthority(url, parts, slice(rest, exec(LEADING_SLASHES, rest)[0].length));
    }
    if (startsWith(rest, '//')) return parseAuthority(url, parts, slice(rest, 2));
    if (rest[0] === '/') return finish(url, parts, startPath(scheme, rest));
    url.isOpaque = true;
    const isFollowed = parts.query !== null || parts.fragment !== null;
    // A blank at the end of an opaque path would be lost when the URL is read again.
    const opaque = isFollowed && endsWith(rest, ' ') ? slice(rest, 0, -1) + '%20' : rest;
    return finish(url, parts, encode(opaque, IN_C0));
  };

  const hostOf = (url) => (url.port === null ? url.host : url.host + ':' + url.port);
  const serializeUrl = (url, withFragment) => {
    let href = url.scheme + ':';
    if (url.host !== null) {
      href += '//';
      if (url.username !== '' || url.password !== '') {
        href += url.username;
        if (url.password !== '') href += ':' + url.password;
        href += '@';
      }
      href += hostOf(url);
    } else if (!url.isOpaque && startsWith(url.path, '//')) {
      // Else the path would be read as a host.
      href += '/.';
    }
    href += url.path;
    if (url.query !== null) href += '?' + url.query;
    if (withFragment && url.fragment !== null) href += '#' + url.fragment;
    return href;
  };

  // --- URLSearchParams and URL ---------------------------------------------------------------

  const parseForm = (string) => {
    const list = [];
    const fields = split(string, '&');
    for (let i = 0; i < fields.length; i += 1) {
      const field = replaceAll(fields[i], '+', ' ');
      if (field === '') continue;
      const mark = indexOf(field, '=');
      const name = mark < 0 ? field : slice(field, 0, mark);
      const value = mark < 0 ? '' : decode(slice(field, mark + 1));
      push(list, { __proto__: null, name: decode(name), value });
    }
    return list;
  };
  const serializeForm = (list) => {
    const fields = [];
    for (let i = 0; i < list.length; i += 1) {
      push(fields, encodeForm(list[i].name) + '=' + encodeForm(list[i].value));
    }
    return join(fields, '&');
  };

  // The pairs of a WebIDL record or sequence of pairs.
  const pairsOf = (init, convert, refuse) => {
    const pairs = [];
    const method = init[ITERATOR];
    if (method === undefined || method === null) {
      const names = ownKeys(init);
      const known = create(null);
      for (let i = 0; i < names.length; i += 1) {
        if (!isEnumerable(init, names[i])) continue;
        const name = convert(names[i]);
        const value = convert(init[names[i]]);
        // Two keys may become one when lone surrogates are replaced.
        if (name in known) known[name].value = value;
        else push(pairs, (known[name] = { __proto__: null, name, value }));
      }
      return pairs;
    }
    for (const pair of { [ITERATOR]: () => apply(method, init, []) }) {
      if (!isObject(pair) || !isFunction(pair[ITERATOR])) throw refuse();
      const items = [];
      for (const item of pair) push(items, item);
      if (items.length !== 2) throw refuse();
      push(pairs, { __proto__: null, name: convert(items[0]), value: convert(items[1]) });
    }
    return pairs;
  };

  const NAME = 'The "name" argument';
  const NAME_AND_VALUE = 'The "name" and "value" arguments';
  let isParams;
  let formOf;
  let paramsOf;
  let refill;

  class URLSearchParams {
    #list = [];
    #changed = null;

    constructor(init = undefined) {
      if (init === undefined) return;
      if (isParams(init)) {
        const list = init.#list;
        for (let i = 0; i < list.length; i += 1) this.#add(list[i].name, list[i].value);
      } else if (isObject(init)) {
        const refuse = () =>
          failure('ERR_INVALID_TUPLE', 'Each query pair must be an iterable [name, value] tuple');
        this.#list = pairsOf(init, usv, refuse);
      } else {
        const string = usv(init);
        this.#list = parseForm(string[0] === '?' ? slice(string, 1) : string);
      }
    }

    static {
      isParams = (value) => isObject(value) && #list in value;
      formOf = (params) => serializeForm(params.#list);
      paramsOf = (query, changed) => {
        const params = new URLSearchParams();
        params.#list = parseForm(query);
        params.#changed = changed;
        return params;
      };
      refill = (params, query) => {
        params.#list = parseForm(query);
      };
    }

    #add(name, value) {
      push(this.#list, { __proto__: null, name, value });
    }

    #keep(isKept) {
      const kept = [];
      for (let i = 0; i < this.#list.length; i += 1) {
        if (isKept(this.#list[i])) push(kept, this.#list[i]);
      }
      this.#list = kept;
    }

    #notify() {
      if (this.#changed !== null) this.#changed();
    }

    get size() {
      return this.#list.length;
    }

    append(name, value) {
      need(2, arguments.length, NAME_AND_VALUE);
      this.#add(usv(name), usv(value));
      this.#notify();
    }

    delete(name, value = undefined) {
      need(1, arguments.length, NAME);
      const key = usv(name);
      const only = value === undefined ? null : usv(value);
      this.#keep((pair) => pair.name !== key || (only !== null && pair.value !== only));
      this.#notify();
    }

    get(name) {
      need(1, arguments.length, NAME);
      const key = usv(name);
      for (let i = 0; i < this.#list.length; i += 1) {
        if (this.#list[i].name === key) return this.#list[i].value;
      }
      return null;
    }

    getAll(name) {
      need(1, arguments.length, NAME);
      const key = usv(name);
      const values = [];
      for (let i = 0; i < this.#list.length; i += 1) {
        if (this.#list[i].name === key) push(values, this.#list[i].value);
      }
      return values;
    }

    has(name, value = undefined) {
      need(1, arguments.length, NAME);
      const key = usv(name);
      const only = value === undefined ? null : usv(value);
      for (let i = 0; i < this.#list.length; i += 1) {
        const pair = this.#list[i];
        if (pair.name === key && (only === null || pair.value === only)) return true;
      }
      return false;
    }

    set(name, value) {
      need(2, arguments.length, NAME_AND_VALUE);
      const key = usv(name);
      const written = usv(value);
      let first = null;
      this.#keep((pair) => {
        if (pair.name !== key) return true;
        const isFirst = first === null;
        if (isFirst) first = pair;
        return isFirst;
      });
      if (first === null) this.#add(key, written);
      else first.value = written;
      this.#notify();
    }

    sort() {
      sort(this.#list, (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
      this.#notify();
    }

    forEach(callback, self = undefined) {
      needFunction(callback);
      for (let i = 0; i < this.#list.length; i += 1) {
        apply(callback, self, [this.#list[i].value, this.#list[i].name, this]);
      }
    }

    *entries() {
      for (let i = 0; i < this.#list.length; i += 1) {
        yield [this.#list[i].name, this.#list[i].value];
      }
    }

    *keys() {
      for (let i = 0; i < this.#list.length; i += 1) yield this.#list[i].name;
    }

    *values() {
      for (let i = 0; i < this.#list.length; i += 1) yield this.#list[i].value;
    }

    toString() {
      return serializeForm(this.#list);
    }
  }
  const entriesOf = (owner) =>
    defineProperty(owner.prototype, ITERATOR, {
      value: owner.prototype.entries,
      writable: true,
      configurable: true,
    });
  entriesOf(URLSearchParams);
  tag(URLSearchParams, 'URLSearchParams');

  const hasCredentials = (url) => url.username !== '' || url.password !== '';
  const hasNoPort = (url) => url.host === null || url.host === '' || url.scheme === 'file';

  const writePort = (url, string) => {
    const digits = exec(/^[0-9]+/, string);
    const port = digits === null ? NaN : parsePort(digits[0]);
    if (port === port) url.port = port === PORTS[url.scheme] ? null : port;
  };

  // The host and hostname states with a state override: what does not fit changes nothing.
  const writeHost = (url, value, isNameOnly) => {
    if (url.isOpaque) return;
    const special = isSpecial(url.scheme);
    const string = withoutBreaks(value);
    const end = exec(special ? /[/?#\\]/ : /[/?#]/, string);
    const written = end === null ? string : slice(string, 0, end.index);
    const isFile = url.scheme === 'file';
    const colon = isFile ? -1 : portColon(written);
    if (colon >= 0 && (colon === 0 || isNameOnly)) return;
    const name = colon < 0 ? written : slice(written, 0, colon);
    if (name === '' && !isFile && (special || hasCredentials(url) || url.port !== null)) return;
    const host = name === '' ? '' : parseHost(name, !special);
    if (host === null) return;
    url.host = isFile && host === 'localhost' ? '' : host;
    if (colon >= 0) writePort(url, slice(written, colon + 1));
  };

  const writeScheme = (url, value) => {
    const found = exec(SCHEME, withoutBreaks(value) + ':');
    if (found === null) return;
    const scheme = lower(found[1]);
    if (isSpecial(scheme) !== isSpecial(url.scheme)) return;
    if (scheme === 'file' && (hasCredentials(url) || url.port !== null)) return;
    if (url.scheme === 'file' && url.host === '') return;
    url.scheme = scheme;
    if (url.port === PORTS[scheme]) url.port = null;
  };

  const invalidUrl = (input, base) => {
    const error = failure('ERR_INVALID_URL', 'Invalid URL');
    error.input = input;
    if (base !== undefined) error.base = base;
    return error;
  };

  const readUrl = (input, base) => {
    if (base === undefined) return parseUrl(input, null);
    const from = parseUrl(base, null);
    return from === null ? null : parseUrl(input, from);
  };
  let recordOf;

  class URL {
    #record;
    #params = null;
    #isStale = false;

    constructor(url, base = undefined) {
      need(1, arguments.length, 'The "url" argument');
      const input = usv(url);
      const from = base === undefined ? undefined : usv(base);
      const record = readUrl(input, from);
      if (record === null) throw invalidUrl(input, from);
      this.#record = record;
    }

    static {
      recordOf = (value) => (isObject(value) && #record in value ? value.#url : null);
    }

    static canParse(url, base = undefined) {
      need(1, arguments.length, 'The "url" argument');
      return URL.parse(url, base) !== null;
    }

    static parse(url, base = undefined) {
      need(1, arguments.length, 'The "url" argument');
      const input = usv(url);
      const from = base === undefined ? undefined : usv(base);
      try {
        return new URL(input, from);
      } catch {
        return null;
      }
    }

    // The record; what became of searchParams is written into it only when it is read.
    get #url() {
      if (this.#isStale) {
        this.#isStale = false;
        this.#record.query = formOf(this.#params) || null;
      }
      return this.#record;
    }

    #refill() {
      this.#isStale = false;
      if (this.#params !== null) refill(this.#params, this.#record.query ?? '');
    }

    get href() { return serializeUrl(this.#url, true); }
    set href(value) {
      const input = usv(value);
      const record = parseUrl(input, null);
      if (record === null) throw invalidUrl(input);
      this.#record = record;
      this.#refill();
    }

    get origin() {
      const url = this.#url;
      if (url.scheme === 'blob') {
        const inner = URL.parse(url.path);
        return inner !== null && startsWith(inner.protocol, 'http') ? inner.origin : 'null';
      }
      if (url.scheme === 'file' || !isSpecial(url.scheme)) return 'null';
      return url.scheme + '://' + hostOf(url);
    }

    get protocol() { return this.#url.scheme + ':'; }
    set protocol(value) { writeScheme(this.#url, usv(value)); }

    get username() { return this.#url.username; }
    set username(value) {
      const written = encode(usv(value), IN_USERINFO);
      if (!hasNoPort(this.#url)) this.#url.username = written;
    }

    get password() { return this.#url.password; }
    set password(value) {
      const written = encode(usv(value), IN_USERINFO);
      if (!hasNoPort(this.#url)) this.#url.password = written;
    }

    get host() { return this.#url.host === null ? '' : hostOf(this.#url); }
    set host(value) { writeHost(this.#url, usv(value), false); }

    get hostname() { return this.#url.host ?? ''; }
    set hostname(value) { writeHost(this.#url, usv(value), true); }

    get port() { return '' + (this.#url.port ?? ''); }
    set port(value) {
      const written = usv(value);
      if (hasNoPort(this.#url)) return;
      if (written === '') this.#url.port = null;
      else writePort(this.#url, withoutBreaks(written));
    }

    get pathname() { return this.#url.path; }
    set pathname(value) {
      const url = this.#url;
      const written = withoutBreaks(usv(value));
      if (url.isOpaque) return;
      // Path start state with a state override: a URL without a host needs a path.
      url.path = written === '' && url.host === null ? '/' : startPath(url.scheme, written);
    }

    get search() { return this.#url.query ? '?' + this.#url.query : ''; }
    set search(value) {
      const written = usv(value);
      const query = withoutBreaks(written[0] === '?' ? slice(written, 1) : written);
      this.#record.query = written === '' ? null : encodeQuery(this.#record.scheme, query);
      this.#refill();
    }

    get searchParams() {
      this.#params ??= paramsOf(this.#record.query ?? '', () => {
        this.#isStale = true;
      });
      return this.#params;
    }

    get hash() { return this.#url.fragment ? '#' + this.#url.fragment : ''; }
    set hash(value) {
      const written = usv(value);
      const fragment = withoutBreaks(written[0] === '#' ? slice(written, 1) : written);
      this.#url.fragment = written === '' ? null : encode(fragment, IN_FRAGMENT);
    }

    toString() { return serializeUrl(this.#url, true); }
    toJSON() { return serializeUrl(this.#url, true); }
  }
  tag(URL, 'URL');

  // --- Buffer --------------------------------------------------------------------------------

  const wrongArgument = (name, words) =>
    failure('ERR_INVALID_ARG_TYPE', `The "${name}" argument must be ${words}.`);
  const BYTES = 'an instance of Buffer or Uint8Array';
  const outOfRange = (words) => failure('ERR_OUT_OF_RANGE', words, RangeError);
  const NOT_BASE64 = /[^A-Za-z0-9+/]+/g;
  const ABOVE_BYTE = /[^\0-\xff]/g;
  const HIGH_BYTE = /[\x80-\xff]/g;

  const latinBytes = (string) => {
    try {
      return bytesOfLatin(string);
    } catch {
      const low = (unit) => fromCharCode(charCodeAt(unit, 0) & 255);
      return bytesOfLatin(rewrite(string, ABOVE_BYTE, low));
    }
  };
  // Node reads both alphabets, skips what is in neither and ends at the first `=`.
  const base64Bytes = (string) => {
    try {
      return fromBase64(string);
    } catch {
      const end = indexOf(string, '=');
      const cut = end < 0 ? string : slice(string, 0, end);
      const standard = replaceAll(replaceAll(cut, '-', '+'), '_', '/');
      const letters = rewrite(standard, NOT_BASE64, () => '');
      return fromBase64(letters.length % 4 === 1 ? slice(letters, 0, -1) : letters);
    }
  };
  // Node stops at the first pair that is not hexadecimal.
  const hexBytes = (string) => {
    try {
      return fromHex(string);
    } catch {
      const bad = exec(/[^0-9A-Fa-f]/, string);
      const end = bad === null ? string.length : bad.index;
      return fromHex(slice(string, 0, end - (end % 2)));
    }
  };
  const base64Size = (string) => {
    const padding = endsWith(string, '==') ? 2 : endsWith(string, '=') ? 1 : 0;
    return ((string.length - padding) * 3) >>> 2;
  };

  const encoding = (read, write, size) => ({ __proto__: null, read, write, size });
  const utf8 = encoding(bytesOfText, textOfBytes, (string) => utf8AsLatin(string).length);
  const latin1 = encoding(latinBytes, latinOfBytes, (string) => string.length);
  const writeAscii = (bytes) => {
    const low = (unit) => fromCharCode(charCodeAt(unit, 0) & 127);
    return rewrite(latinOfBytes(bytes), HIGH_BYTE, low);
  };
  const writeUrlBase64 = (bytes) =>
    replaceAll(replaceAll(replaceAll(toBase64(bytes), '=', ''), '+', '-'), '/', '_');
  const ENCODINGS = {
    __proto__: null,
    utf8,
    'utf-8': utf8,
    latin1,
    binary: latin1,
    ascii: encoding(latinBytes, writeAscii, latin1.size),
    hex: encoding(hexBytes, (bytes) => toHex(bytes), (string) => string.length >>> 1),
    base64: encoding(base64Bytes, (bytes) => toBase64(bytes), base64Size),
    base64url: encoding(base64Bytes, writeUrlBase64, base64Size),
  };
  const encodingOf = (name) => {
    const found = ENCODINGS[lower(stringOf(name))];
    if (found === undefined) throw failure('ERR_UNKNOWN_ENCODING', `Unknown encoding: ${name}`);
    return found;
  };

  class Buffer extends Uint8Array {
    static from(value, encodingOrOffset = undefined, length = undefined) {
      if (typeof value === 'string') {
        return owned(encodingOf(encodingOrOffset || 'utf8').read(value));
      }
      if (isBytes(value) || isArray(value)) return fromList(value);
      if (isMemory(value)) return new Buffer(value, encodingOrOffset, length);
      if (isObject(value)) {
        const plain = isFunction(value.valueOf) ? value.valueOf() : value;
        if (plain !== value && plain !== null && plain !== undefined) {
          return Buffer.from(plain, encodingOrOffset, length);
        }
        // What JSON makes of a Buffer is read back.
        const list = value.length === undefined && value.type === 'Buffer' ? value.data : value;
        if (isArray(list)) return fromList(list);
        if (list.length !== undefined) return fromList(typeof list.length === 'number' ? list : []);
      }
      throw wrongArgument('value', 'of type string, a Buffer, an ArrayBuffer or like an Array');
    }

    static alloc(size, fill = undefined, encoding = undefined) {
      checkSize(size);
      const made = new Buffer(size);
      if (fill === undefined || fill === 0) return made;
      if (typeof fill !== 'string' && !isBytes(fill)) return fillWith(made, fill);
      const pattern = typeof fill === 'string' ? encodingOf(encoding || 'utf8').read(fill) : fill;
      const width = sizeOf(pattern);
      if (width === 0) {
        if (fill === '') return made;
        throw failure('ERR_INVALID_ARG_VALUE', "The argument 'value' is invalid.");
      }
      // Doubling what is filled keeps the number of copies small.
      copyInto(made, width > size ? part(pattern, 0, size) : pattern);
      for (let done = width; done < size; done *= 2) {
        copyInto(made, part(made, 0, done * 2 > size ? size - done : done), done);
      }
      return made;
    }

    static byteLength(value, encoding = undefined) {
      if (typeof value === 'string') {
        const known = ENCODINGS[lower(stringOf(encoding ?? 'utf8'))] ?? utf8;
        return known.size(value);
      }
      const bytes = bytesOf(value);
      if (bytes === null) {
        throw wrongArgument('string', 'of type string or an instance of Buffer or ArrayBuffer');
      }
      return sizeOf(bytes);
    }

    static concat(list, length = undefined) {
      if (!isArray(list)) throw wrongArgument('list', 'an instance of Array');
      let total = 0;
      for (let i = 0; i < list.length; i += 1) {
        if (!isBytes(list[i])) throw wrongArgument(`list[${i}]`, BYTES);
        total += sizeOf(list[i]);
      }
      if (length !== undefined) checkSize(length);
      const made = new Buffer(length ?? total);
      const size = sizeOf(made);
      for (let i = 0, done = 0; i < list.length && done < size; i += 1) {
        const width = sizeOf(list[i]);
        copyInto(made, done + width > size ? part(list[i], 0, size - done) : list[i], done);
        done += width;
      }
      return made;
    }

    static isBuffer(value) {
      return value instanceof Buffer;
    }

    // Unlike a typed array's, a Buffer's slice is a view.
    slice(start = undefined, end = undefined) {
      return part(this, start, end);
    }

    equals(other) {
      if (!isBytes(other)) throw wrongArgument('otherBuffer', BYTES);
      return sizeOf(this) === sizeOf(other) && toHex(this) === toHex(other);
    }

    toString(encoding = 'utf8', start = 0, end = undefined) {
      const size = sizeOf(this);
      const from = within(start, size);
      const to = end === undefined ? size : within(end, size);
      return to <= from ? '' : encodingOf(encoding).write(viewOf(this, from, to - from));
    }

    toJSON() {
      const data = [];
      for (let i = 0; i < sizeOf(this); i += 1) push(data, this[i]);
      return { type: 'Buffer', data };
    }
  }
  const viewOf = (bytes, start, length) =>
    new Uint8Array(memoryOf(bytes), startOf(bytes) + start, length);
  const within = (index, size) => {
    const whole = trunc(+index) || 0;
    return whole < 0 ? 0 : whole > size ? size : whole;
  };
  const owned = (bytes) => new Buffer(memoryOf(bytes), startOf(bytes), sizeOf(bytes));
  const fromList = (list) => {
    const made = new Buffer(list.length > 0 ? list.length : 0);
    copyInto(made, list);
    return made;
  };
  const checkSize = (size) => {
    if (typeof size !== 'number') throw wrongArgument('size', 'of type number');
    if (!(size >= 0 && size < 2 ** 53)) {
      throw outOfRange(`The value of "size" is out of range. Received ${size}`);
    }
  };
  const checkOffset = (buffer, offset, width) => {
    if (typeof offset !== 'number') throw wrongArgument('offset', 'of type number');
    const last = sizeOf(buffer) - width;
    if (isInteger(offset) && last < 0) {
      throw failure(
        'ERR_BUFFER_OUT_OF_BOUNDS',
        'Attempt to access memory outside buffer bounds',
        RangeError,
      );
    }
    if (!isInteger(offset) || offset < 0 || offset > last) {
      const range = isInteger(offset) ? `>= 0 and <= ${last}` : 'an integer';
      throw outOfRange(
        `The value of "offset" is out of range. It must be ${range}. Received ${offset}`,
      );
    }
  };
  const method = (owner, name, value) =>
    defineProperty(owner.prototype, name, { value, writable: true, configurable: true });

  const addReads = () => {
    const small = { Int8: 1, Uint8: 1, Int16: 2, Uint16: 2, Int32: 4, Uint32: 4, Float32: 4 };
    const widths = { ...small, Float64: 8, BigInt64: 8, BigUint64: 8 };
    const names = { Float32: 'Float', Float64: 'Double' };
    for (const kind of keysOf(widths)) {
      const width = widths[kind];
      const read = uncurry(DataView.prototype[`get${kind}`]);
      for (const order of width === 1 ? [''] : ['LE', 'BE']) {
        const isLittle = order === 'LE';
        // A method has a `this`, unlike an arrow function, and no `new`.
        const { reads } = {
          reads(offset = 0) {
            checkOffset(this, offset, width);
            const view = new DataView(memoryOf(this), startOf(this), sizeOf(this));
            return read(view, offset, isLittle);
          },
        };
        const name = `read${names[kind] ?? kind}${order}`;
        method(Buffer, name, reads);
        method(Buffer, replaceAll(name, 'Uint', 'UInt'), reads);
      }
    }
  };
  addReads();

  // --- Headers and Response ------------------------------------------------------------------

  const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
  const BAD_VALUE = /[\0\n\r]/;
  const HTTP_BLANK = { __proto__: null, ' ': 1, '\t': 1, '\n': 1, '\r': 1 };
  const byteString = (value) => {
    const string = stringOf(value);
    const wide = exec(/[^\0-\xff]/, string);
    if (wide !== null) {
      throw new TypeError(
        `Cannot convert argument to a ByteString because the character at index ${wide.index} ` +
          `has a value of ${charCodeAt(wide[0], 0)} which is greater than 255.`,
      );
    }
    return string;
  };
  const headerName = (value) => {
    const name = byteString(value);
    if (exec(TOKEN, name) === null) throw new TypeError(`"${name}" is an invalid header name.`);
    return lower(name);
  };
  const headerValue = (value) => {
    const string = byteString(value);
    let start = 0;
    let end = string.length;
    while (end > start && string[end - 1] in HTTP_BLANK) end -= 1;
    while (start < end && string[start] in HTTP_BLANK) start += 1;
    const trimmed = slice(string, start, end);
    if (exec(BAD_VALUE, trimmed)) throw new TypeError(`"${trimmed}" is an invalid header value.`);
    return trimmed;
  };
  let isHeaders;
  let valuesOf;
  let setType;
  let receivedHeaders;

  class Headers {
    // Lower-case names to lists of values; only set-cookie is never joined.
    #values = create(null);

    constructor(init = undefined) {
      if (init === undefined) return;
      if (!isObject(init)) {
        throw new TypeError('Headers constructor: Argument 1 must be an object or pairs.');
      }
      if (isHeaders(init)) {
        this.#take(init.#values);
        return;
      }
      const refuse = () =>
        new TypeError('Headers constructor: expected name/value pairs of length 2.');
      const pairs = pairsOf(init, byteString, refuse);
      for (let i = 0; i < pairs.length; i += 1) {
        this.#add(headerName(pairs[i].name), headerValue(pairs[i].value));
      }
    }

    static {
      isHeaders = (value) => isObject(value) && #values in value;
      valuesOf = (headers) => headers.#list();
      setType = (headers, type) => {
        const isTyped = type === null || 'content-type' in headers.#values;
        if (!isTyped) headers.#add('content-type', type);
      };
      // What came from upstream is taken as it is.
      receivedHeaders = (pairs) => {
        const headers = new Headers();
        for (let i = 0; i < pairs.length; i += 1) headers.#add(lower(pairs[i][0]), pairs[i][1]);
        return headers;
      };
    }

    #take(values) {
      for (const name in values) {
        for (let i = 0; i < values[name].length; i += 1) this.#add(name, values[name][i]);
      }
    }

    #add(name, value) {
      if (name in this.#values) push(this.#values[name], value);
      else this.#values[name] = [value];
    }

    // Sorted pairs, as the Fetch Standard iterates; taken when an iteration starts.
    #list() {
      const list = [];
      const names = sort(keysOf(this.#values));
      for (let i = 0; i < names.length; i += 1) {
        const name = names[i];
        const values = this.#values[name];
        if (name === 'set-cookie') {
          for (let n = 0; n < values.length; n += 1) push(list, [name, values[n]]);
        } else {
          push(list, [name, join(values, ', ')]);
        }
      }
      return list;
    }

    append(name, value) {
      need(2, arguments.length, NAME_AND_VALUE);
      this.#add(headerName(name), headerValue(value));
    }

    delete(name) {
      need(1, arguments.length, NAME);
      delete this.#values[headerName(name)];
    }

    get(name) {
      need(1, arguments.length, NAME);
      const values = this.#values[headerName(name)];
      return values === undefined ? null : join(values, ', ');
    }

    getSetCookie() {
      const values = this.#values['set-cookie'] ?? [];
      const copy = [];
      for (let i = 0; i < values.length; i += 1) push(copy, values[i]);
      return copy;
    }

    has(name) {
      need(1, arguments.length, NAME);
      return headerName(name) in this.#values;
    }

    set(name, value) {
      need(2, arguments.length, NAME_AND_VALUE);
      this.#values[headerName(name)] = [headerValue(value)];
    }

    forEach(callback, self = undefined) {
      needFunction(callback);
      const list = this.#list();
      for (let i = 0; i < list.length; i += 1) {
        apply(callback, self, [list[i][1], list[i][0], this]);
      }
    }

    *entries() {
      const list = this.#list();
      for (let i = 0; i < list.length; i += 1) yield list[i];
    }

    *keys() {
      const list = this.#list();
      for (let i = 0; i < list.length; i += 1) yield list[i][0];
    }

    *values() {
      const list = this.#list();
      for (let i = 0; i < list.length; i += 1) yield list[i][1];
    }
  }
  entriesOf(Headers);
  tag(Headers, 'Headers');

  // A body is a text or bytes; `type` is the content type that the Fetch Standard gives it.
  const bodyOf = (value) => {
    if (value === undefined || value === null) return { __proto__: null, data: null, type: null };
    const bytes = bytesOf(value);
    if (bytes !== null) {
      return { __proto__: null, data: copyOf(bytes), type: null };
    }
    if (isParams(value)) {
      const type = 'application/x-www-form-urlencoded;charset=UTF-8';
      return { __proto__: null, data: formOf(value), type };
    }
    return { __proto__: null, data: usv(value), type: 'text/plain;charset=UTF-8' };
  };
  const textOfBody = (data) =>
    data === null ? '' : withoutMark(typeof data === 'string' ? data : textOfBytes(data));
  const NULL_BODY = { __proto__: null, 101: 1, 103: 1, 204: 1, 205: 1, 304: 1 };
  const head = (status, statusText, url, headers) =>
    ({ __proto__: null, status, statusText, url, headers });
  let received;

  class Response {
    #data;
    #head;
    #isUsed = false;

    constructor(body = null, init = undefined) {
      const { data, type } = bodyOf(body);
      const { status = 200, statusText = '', headers = undefined } = init ?? {};
      const code = +status;
      if (!(isInteger(code) && code >= 200 && code <= 599)) {
        throw new RangeError('init["status"] must be in the range of 200 to 599, inclusive.');
      }
      if (data !== null && code in NULL_BODY) {
        throw new TypeError(`Response constructor: Invalid response status code ${code}`);
      }
      const own = new Headers(headers);
      setType(own, type);
      this.#data = data;
      this.#head = head(code, byteString(statusText), '', own);
    }

    static {
      // `text` is the body as UTF-8, a byte order mark left in it; any other body is base64.
      received = (reply) => {
        const response = new Response();
        response.#data =
          reply.base64 === undefined || reply.base64 === null
            ? (reply.text ?? null)
            : fromBase64(reply.base64);
        const { status, statusText = '', url = '', headers = [] } = reply;
        response.#head = head(status, statusText, url, receivedHeaders(headers));
        return response;
      };
    }

    get status() { return this.#head.status; }
    get ok() { return this.#head.status >= 200 && this.#head.status <= 299; }
    get statusText() { return this.#head.statusText; }
    get url() { return this.#head.url; }
    get headers() { return this.#head.headers; }
    get bodyUsed() { return this.#isUsed; }

    #use() {
      if (this.#isUsed) throw new TypeError('Body is unusable: Body has already been read');
      this.#isUsed = this.#data !== null;
      return this.#data;
    }

    async text() {
      return textOfBody(this.#use());
    }

    async json() {
      return parseJson(textOfBody(this.#use()));
    }

    async arrayBuffer() {
      const data = this.#use() ?? '';
      return memoryOf(typeof data === 'string' ? bytesOfText(data) : copyOf(data));
    }

    clone() {
      if (this.#isUsed) throw new TypeError('Response.clone: Body has already been consumed.');
      const twin = new Response();
      twin.#data = this.#data;
      const { status, statusText, url, headers } = this.#head;
      twin.#head = head(status, statusText, url, new Headers(headers));
      return twin;
    }
  }
  tag(Response, 'Response');

  // --- AbortSignal, AbortController ----------------------------------------------------------

  // Inert: the host owns timeouts, so nothing is ever aborted but by the hook's own hand, and that
  // is seen by `aborted` and by the next fetch; no event is sent.
  const abortError = () => {
    const error = new Error('This operation was aborted');
    defineProperty(error, 'name', { value: 'AbortError', writable: true, configurable: true });
    return error;
  };
  let signalOf;
  let abort;
  let abortion;

  class AbortSignal {
    #abortion = null;
    onabort = null;

    constructor(key) {
      if (key !== abortError) throw failure('ERR_ILLEGAL_CONSTRUCTOR', 'Illegal constructor');
    }

    static {
      signalOf = () => new AbortSignal(abortError);
      abort = (signal, reason) => {
        const why = reason === undefined ? abortError() : reason;
        signal.#abortion ??= { __proto__: null, reason: why };
        return signal;
      };
      abortion = (value) => (isObject(value) && #abortion in value ? value.#abortion : null);
    }

    static abort(reason = undefined) {
      return abort(signalOf(), reason);
    }

    static timeout() {
      return signalOf();
    }

    static any(signals) {
      const made = signalOf();
      for (const signal of signals) {
        const found = abortion(signal);
        if (found !== null) abort(made, found.reason);
      }
      return made;
    }

    get aborted() { return this.#abortion !== null; }
    get reason() { return this.#abortion === null ? undefined : this.#abortion.reason; }
    throwIfAborted() {
      if (this.#abortion !== null) throw this.#abortion.reason;
    }
    addEventListener() {}
    removeEventListener() {}
  }
  tag(AbortSignal, 'AbortSignal');

  class AbortController {
    #signal = signalOf();

    get signal() { return this.#signal; }
    abort(reason = undefined) {
      abort(this.#signal, reason);
    }
  }
  tag(AbortController, 'AbortController');

  // --- fetch ---------------------------------------------------------------------------------

  // The Fetch Standard writes only these in capitals; any other method goes as it is written.
  const NORMAL_METHODS = /^(?:DELETE|GET|HEAD|OPTIONS|POST|PUT)$/;
  const FORBIDDEN_METHODS = /^(?:CONNECT|TRACE|TRACK)$/;
  const methodOf = (value) => {
    const written = byteString(value);
    const loud = upper(written);
    if (exec(TOKEN, written) === null) {
      throw new TypeError(`'${written}' is not a valid HTTP method.`);
    }
    if (exec(FORBIDDEN_METHODS, loud) !== null) {
      throw new TypeError(`'${written}' HTTP method is unsupported.`);
    }
    return exec(NORMAL_METHODS, loud) === null ? written : loud;
  };

  const targetOf = (address) => {
    let record = recordOf(address);
    if (record === null) {
      const written = usv(address);
      record = parseUrl(written, null);
      if (record === null) throw new TypeError(`Failed to parse URL from ${written}`);
    }
    if (hasCredentials(record)) {
      throw new TypeError('Request cannot be constructed from a URL that includes credentials');
    }
    return serializeUrl(record, false);
  };

  // The record of a request that the host is asked for. Without prototypes, no `toJSON` of a hook
  // has a say in what it reads as.
  const requestOf = (input, init) => {
    const request = isObject(input) && recordOf(input) === null && 'url' in input ? input : null;
    const pick = (name) => init?.[name] ?? request?.[name] ?? undefined;
    const signal = abortion(pick('signal'));
    const url = targetOf(request === null ? input : request.url);
    const verb = methodOf(pick('method') ?? 'GET');
    const headers = new Headers(pick('headers'));
    const { data, type } = bodyOf(pick('body'));
    if (data !== null && (verb === 'GET' || verb === 'HEAD')) {
      throw new TypeError('Request with GET/HEAD method cannot have body.');
    }
    if (signal !== null) throw signal.reason;
    setType(headers, type);
    const pairs = valuesOf(headers);
    for (let i = 0; i < pairs.length; i += 1) bare(pairs[i]);
    const made = { __proto__: null, url, method: verb, headers: bare(pairs) };
    if (typeof data === 'string') made.text = data;
    else if (data !== null) made.base64 = toBase64(data);
    return made;
  };
  const bare = (list) => setPrototypeOf(list, null);

  const fetch = async (input, init = undefined) =>
    received(await effect('fetch', requestOf(input, init)));

  // --- console -------------------------------------------------------------------------------

  const MAX_LINE = 10_000;
  const isError = (value) => value instanceof Error;
  const shown = (value) => {
    if (typeof value === 'string') return value;
    if (typeof value === 'bigint') return value + 'n';
    if (typeof value === 'symbol') return symbolTextOf(value);
    if (value === 0 && 1 / value < 0) return '-0';
    if (!isObject(value)) return '' + value;
    try {
      if (isFunction(value)) {
        const kind = startsWith(functionTextOf(value), 'class') ? 'class' : 'Function';
        if (value.name === '') return '[' + kind + ' (anonymous)]';
        return '[' + kind + (kind === 'class' ? ' ' : ': ') + value.name + ']';
      }
      return isError(value) ? errorTextOf(value) : (stringify(value) ?? '[object]');
    } catch {
      // A cycle, a BigInt inside, a getter that throws.
      return '[object]';
    }
  };
  const line = (values) => {
    let written = '';
    for (let i = 0; i < values.length && written.length <= MAX_LINE; i += 1) {
      written += (i === 0 ? '' : ' ') + shown(values[i]);
    }
    return written.length > MAX_LINE ? slice(written, 0, MAX_LINE) + '…' : written;
  };

  const console = {};
  for (const level of ['log', 'info', 'warn', 'error', 'debug']) {
    console[level] = (...values) => {
      log(level, line(values));
    };
  }

  for (const [name, value] of [
    ['URL', URL],
    ['URLSearchParams', URLSearchParams],
    ['Buffer', Buffer],
    ['Headers', Headers],
    ['Response', Response],
    ['AbortSignal', AbortSignal],
    ['AbortController', AbortController],
    ['fetch', fetch],
    ['console', console],
  ]) {
    install(name, value);
  }
}
