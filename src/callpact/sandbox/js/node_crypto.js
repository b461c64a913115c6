// Node's `crypto` as far as hooks have it: hashes, HMAC, a comparison, random bytes. One function
// expression; the driver calls it once, before any code of a file runs. It needs `Buffer`.
//
// Everything is computed in the guest. Random bytes come from a seed that the host draws from the
// system for each call of a hook. A key of the file is a placeholder here, so its digest cannot be
// computed: the text of such a digest is a placeholder as well, which the host replaces by the
// digest of the real key when the request leaves (digests.py).
({ absent, limits }) => {
  const { Buffer, Uint8Array, Int32Array, DataView, ArrayBuffer } = globalThis;
  const MARK = /callpact-secret-[0-9a-f]{8,64}-/;
  const { sealed: MAX_SEALED, random: MAX_RANDOM } = limits;

  const failure = (Kind, code, message) => {
    const error = new Kind(message);
    error.code = code;
    return error;
  };

  // --- compression functions ---------------------------------------------------------------

  // The message with its padding; lengths of more than 2 ** 53 bits do not fit into a guest.
  const padded = (bytes, block, isLittle) => {
    const tail = block === 128 ? 16 : 8;
    const size = Math.ceil((bytes.length + 1 + tail) / block) * block;
    const made = new Uint8Array(size);
    made.set(bytes);
    made[bytes.length] = 0x80;
    const view = new DataView(made.buffer);
    const bits = bytes.length * 8;
    if (isLittle) {
      view.setUint32(size - 8, bits % 0x100000000, true);
      view.setUint32(size - 4, Math.floor(bits / 0x100000000), true);
    } else {
      view.setUint32(size - 4, bits % 0x100000000);
      view.setUint32(size - 8, Math.floor(bits / 0x100000000));
    }
    return view;
  };

  const bytesOfWords = (words, size, isLittle) => {
    const view = new DataView(new ArrayBuffer(words.length * 4));
    words.forEach((word, at) => view.setInt32(at * 4, word, isLittle));
    return new Uint8Array(view.buffer, 0, size);
  };

  // The first bits of the fractional parts of roots of primes, as pairs of 32-bit words.
  const primes = (count) => {
    const found = [];
    for (let n = 2; found.length < count; n += 1) {
      if (found.every((prime) => n % prime)) found.push(n);
    }
    return found;
  };
  const root = (prime, power) => {
    const wanted = BigInt(prime) << BigInt(64 * power);
    let low = 0n;
    let high = 1n << 72n;
    while (high - low > 1n) {
      const middle = (low + high) >> 1n;
      if (middle ** BigInt(power) <= wanted) low = middle;
      else high = middle;
    }
    return BigInt.asUintN(64, low);
  };
  const highWord = (value) => Number(BigInt.asIntN(32, value >> 32n));
  const lowWord = (value) => Number(BigInt.asIntN(32, value));
  const CUBES = primes(80).map((prime) => root(prime, 3));
  const SQUARES = primes(16).map((prime) => root(prime, 2));
  const K256 = Int32Array.from(CUBES.slice(0, 64), highWord);
  const K512 = Int32Array.from(CUBES.flatMap((value) => [highWord(value), lowWord(value)]));
  const KMD5 = Int32Array.from({ length: 64 }, (_, at) =>
    Math.floor(Math.abs(Math.sin(at + 1)) * 0x100000000) | 0);
  const RMD5 = [7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21];

  const md5 = (bytes) => {
    const view = padded(bytes, 64, true);
    let [a0, b0, c0, d0] = [0x67452301, 0xefcdab89 | 0, 0x98badcfe | 0, 0x10325476];
    const w = new Int32Array(16);
    for (let start = 0; start < view.byteLength; start += 64) {
      for (let i = 0; i < 16; i += 1) w[i] = view.getInt32(start + i * 4, true);
      let [a, b, c, d] = [a0, b0, c0, d0];
      for (let i = 0; i < 64; i += 1) {
        let f;
        let g;
        if (i < 16) {
          f = (b & c) | (~b & d);
          g = i;
        } else if (i < 32) {
          f = (d & b) | (~d & c);
          g = (5 * i + 1) & 15;
        } else if (i < 48) {
          f = b ^ c ^ d;
          g = (3 * i + 5) & 15;
        } else {
          f = c ^ (b | ~d);
          g = (7 * i) & 15;
        }
        const sum = (a + f + KMD5[i] + w[g]) | 0;
        const by = RMD5[(i >> 4) * 4 + (i & 3)];
        a = d;
        d = c;
        c = b;
        b = (b + ((sum << by) | (sum >>> (32 - by)))) | 0;
      }
      a0 = (a0 + a) | 0;
      b0 = (b0 + b) | 0;
      c0 = (c0 + c) | 0;
      d0 = (d0 + d) | 0;
    }
    return bytesOfWords([a0, b0, c0, d0], 16, true);
  };

  const sha1 = (bytes) => {
    const view = padded(bytes, 64, false);
    let [h0, h1, h2, h3, h4] =
      [0x67452301, 0xefcdab89 | 0, 0x98badcfe | 0, 0x10325476, 0xc3d2e1f0 | 0];
    const w = new Int32Array(80);
    for (let start = 0; start < view.byteLength; start += 64) {
      for (let i = 0; i < 16; i += 1) w[i] = view.getInt32(start + i * 4);
      for (let i = 16; i < 80; i += 1) {
        const x = w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16];
        w[i] = (x << 1) | (x >>> 31);
      }
      let [a, b, c, d, e] = [h0, h1, h2, h3, h4];
      for (let i = 0; i < 80; i += 1) {
        let f;
        if (i < 20) f = ((b & c) | (~b & d)) + 0x5a827999;
        else if (i < 40) f = (b ^ c ^ d) + 0x6ed9eba1;
        else if (i < 60) f = ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
        else f = (b ^ c ^ d) + 0xca62c1d6;
        const next = (((a << 5) | (a >>> 27)) + f + e + w[i]) | 0;
        e = d;
        d = c;
        c = (b << 30) | (b >>> 2);
        b = a;
        a = next;
      }
      h0 = (h0 + a) | 0;
      h1 = (h1 + b) | 0;
      h2 = (h2 + c) | 0;
      h3 = (h3 + d) | 0;
      h4 = (h4 + e) | 0;
    }
    return bytesOfWords([h0, h1, h2, h3, h4], 20, false);
  };

  const sha2 = (first, size) => (bytes) => {
    const view = padded(bytes, 64, false);
    const h = Int32Array.from(first);
    const w = new Int32Array(64);
    const k = K256; // a name of this function is found sooner
    for (let start = 0; start < view.byteLength; start += 64) {
      for (let i = 0; i < 16; i += 1) w[i] = view.getInt32(start + i * 4);
      for (let i = 16; i < 64; i += 1) {
        const x = w[i - 15];
        const y = w[i - 2];
        w[i] = w[i - 16] + w[i - 7]
          + (((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3))
          + (((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10));
      }
      let [a, b, c, d, e, f, g, last] = h;
      for (let i = 0; i < 64; i += 1) {
        const one = (last + ((e & f) ^ (~e & g)) + k[i] + w[i]
          + (((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7)))) | 0;
        const two = (((a & b) ^ (a & c) ^ (b & c))
          + (((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10)))) | 0;
        last = g;
        g = f;
        f = e;
        e = (d + one) | 0;
        d = c;
        c = b;
        b = a;
        a = (one + two) | 0;
      }
      [a, b, c, d, e, f, g, last].forEach((value, at) => { h[at] += value; });
    }
    return bytesOfWords(h, size, false);
  };

  // 64-bit words are pairs of 32-bit ones: BigInt is far slower.
  const sha2Long = (first, size) => (bytes) => {
    const view = padded(bytes, 128, false);
    const h = Int32Array.from(first);
    const w = new Int32Array(160);
    const s = new Int32Array(16);
    for (let start = 0; start < view.byteLength; start += 128) {
      for (let i = 0; i < 32; i += 1) w[i] = view.getInt32(start + i * 4);
      for (let i = 32; i < 160; i += 2) {
        const xh = w[i - 30];
        const xl = w[i - 29];
        const yh = w[i - 4];
        const yl = w[i - 3];
        const ph = ((xh >>> 1) | (xl << 31)) ^ ((xh >>> 8) | (xl << 24)) ^ (xh >>> 7);
        const pl = ((xl >>> 1) | (xh << 31)) ^ ((xl >>> 8) | (xh << 24)) ^ ((xl >>> 7) | (xh << 25));
        const qh = ((yh >>> 19) | (yl << 13)) ^ ((yl >>> 29) | (yh << 3)) ^ (yh >>> 6);
        const ql = ((yl >>> 19) | (yh << 13)) ^ ((yh >>> 29) | (yl << 3)) ^ ((yl >>> 6) | (yh << 26));
        const low = (w[i - 31] >>> 0) + (pl >>> 0) + (w[i - 13] >>> 0) + (ql >>> 0);
        w[i + 1] = low | 0;
        w[i] = w[i - 32] + ph + w[i - 14] + qh + Math.floor(low / 0x100000000);
      }
      s.set(h);
      for (let i = 0; i < 160; i += 2) {
        const eh = s[8];
        const el = s[9];
        const ah = s[0];
        const al = s[1];
        const ph = ((eh >>> 14) | (el << 18)) ^ ((eh >>> 18) | (el << 14)) ^ ((el >>> 9) | (eh << 23));
        const pl = ((el >>> 14) | (eh << 18)) ^ ((el >>> 18) | (eh << 14)) ^ ((eh >>> 9) | (el << 23));
        const oneLow = (s[15] >>> 0) + (pl >>> 0) + (((el & s[11]) ^ (~el & s[13])) >>> 0)
          + (K512[i + 1] >>> 0) + (w[i + 1] >>> 0);
        const oneHigh = (s[14] + ph + ((eh & s[10]) ^ (~eh & s[12])) + K512[i] + w[i]
          + Math.floor(oneLow / 0x100000000)) | 0;
        const qh = ((ah >>> 28) | (al << 4)) ^ ((al >>> 2) | (ah << 30)) ^ ((al >>> 7) | (ah << 25));
        const ql = ((al >>> 28) | (ah << 4)) ^ ((ah >>> 2) | (al << 30)) ^ ((ah >>> 7) | (al << 25));
        const twoLow = (ql >>> 0) + (((al & s[3]) ^ (al & s[5]) ^ (s[3] & s[5])) >>> 0);
        const twoHigh = (qh + ((ah & s[2]) ^ (ah & s[4]) ^ (s[2] & s[4]))
          + Math.floor(twoLow / 0x100000000)) | 0;
        s.copyWithin(2, 0, 14);
        const newE = (s[9] >>> 0) + (oneLow >>> 0);
        s[8] = s[8] + oneHigh + Math.floor(newE / 0x100000000);
        s[9] = newE | 0;
        const newA = (oneLow >>> 0) + (twoLow >>> 0);
        s[0] = oneHigh + twoHigh + Math.floor(newA / 0x100000000);
        s[1] = newA | 0;
      }
      for (let i = 0; i < 16; i += 2) {
        const low = (h[i + 1] >>> 0) + (s[i + 1] >>> 0);
        h[i] = h[i] + s[i] + Math.floor(low / 0x100000000);
        h[i + 1] = low | 0;
      }
    }
    return bytesOfWords(h, size, false);
  };

  const pairs = (values) => values.flatMap((value) => [highWord(value), lowWord(value)]);
  const upperHalf = SQUARES.slice(8, 16);
  const DIGESTS = {
    __proto__: null,
    md5: { block: 64, run: md5 },
    sha1: { block: 64, run: sha1 },
    sha224: { block: 64, run: sha2(upperHalf.map(lowWord), 28) },
    sha256: { block: 64, run: sha2(SQUARES.slice(0, 8).map(highWord), 32) },
    sha384: { block: 128, run: sha2Long(pairs(upperHalf), 48) },
    sha512: { block: 128, run: sha2Long(pairs(SQUARES.slice(0, 8)), 64) },
  };
  const HASHES = Object.keys(DIGESTS).join(', ');

  const nameOf = (algorithm) => {
    if (typeof algorithm !== 'string') {
      throw failure(TypeError, 'ERR_INVALID_ARG_TYPE', 'The "algorithm" argument must be of type string');
    }
    return algorithm.toLowerCase().replace(/^rsa-/, '').replace(/^sha2?-(?=\d)/, 'sha');
  };

  // --- hashes ------------------------------------------------------------------------------

  const bytesOf = (data, encoding, name, takesMemory) => {
    if (typeof data === 'string') return Buffer.from(data, encoding === 'buffer' ? 'utf8' : encoding);
    if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (takesMemory && data instanceof ArrayBuffer) return new Uint8Array(data);
    throw failure(TypeError, 'ERR_INVALID_ARG_TYPE',
      `The "${name}" argument must be of type string or an instance of Buffer, TypedArray, or DataView`);
  };

  const markIn = (bytes) => {
    const found = bytes.length < 24 ? null : MARK.exec(Buffer.from(bytes).toString('latin1'));
    return found === null ? null : found[0];
  };

  const hex = (bytes) => Buffer.from(bytes).toString('hex');
  const SEALABLE = ['hex', 'base64', 'base64url'];

  // The digest of a text with a key in it: a placeholder for the host.
  const sealed = (mark, kind, name, encoding, message, key) => {
    if (!SEALABLE.includes(encoding)) {
      throw new Error(`a digest of a key is a text for the request: digest('hex'), 'base64' or 'base64url'`);
    }
    if (message.length + key.length > MAX_SEALED) {
      throw new RangeError(`a text with a key that is hashed may have ${MAX_SEALED} bytes, got ${message.length + key.length}`);
    }
    return `${mark}${kind}-${name}-${encoding}-${hex(message)}-${hex(key)}-end`;
  };

  const encoded = (bytes, encoding) => {
    const made = Buffer.from(bytes);
    const wanted = String(encoding ?? 'buffer').toLowerCase();
    const isText = [...SEALABLE, 'latin1', 'binary', 'utf8', 'utf-8', 'ascii'].includes(wanted);
    if (!isText && /^(ucs-?2|utf-?16le)$/.test(wanted)) absent(`the encoding ${wanted}`);
    return isText ? made.toString(wanted) : made;
  };

  const keyed = (digest, key, message) => {
    const short = key.length > digest.block ? digest.run(key) : key;
    const inner = new Uint8Array(digest.block + message.length);
    const outer = new Uint8Array(digest.block);
    inner.set(short);
    outer.set(short);
    for (let at = 0; at < digest.block; at += 1) {
      inner[at] ^= 0x36;
      outer[at] ^= 0x5c;
    }
    inner.set(message, digest.block);
    return digest.run(Buffer.concat([outer, digest.run(inner)]));
  };

  class Hash {
    #name;
    #parts = [];
    #key;
    #isDone = false;

    constructor(name, key) {
      this.#name = name;
      this.#key = key;
    }

    update(data, encoding) {
      if (this.#isDone) throw this.#finalized();
      this.#parts.push(Buffer.from(bytesOf(data, encoding, 'data')));
      return this;
    }

    digest(encoding) {
      if (this.#isDone) {
        if (this.#key === null) throw this.#finalized();
        return encoded(new Uint8Array(0), encoding); // as Node has it
      }
      this.#isDone = true;
      const message = Buffer.concat(this.#parts);
      const digest = DIGESTS[this.#name];
      const mark = markIn(message) ?? (this.#key === null ? null : markIn(this.#key));
      if (mark !== null) {
        const kind = this.#key === null ? 'hash' : 'hmac';
        return sealed(mark, kind, this.#name, encoding, message, this.#key ?? []);
      }
      return encoded(this.#key === null ? digest.run(message) : keyed(digest, this.#key, message), encoding);
    }

    copy() {
      if (this.#isDone) throw this.#finalized();
      const made = new Hash(this.#name, this.#key);
      made.#parts = [...this.#parts];
      return made;
    }

    #finalized() {
      return failure(Error, 'ERR_CRYPTO_HASH_FINALIZED', 'Digest already called');
    }
  }

  const createHash = (algorithm) => {
    const name = nameOf(algorithm);
    if (!(name in DIGESTS)) {
      throw new Error(`Digest method not supported: '${algorithm}'; hooks have ${HASHES}`);
    }
    return new Hash(name, null);
  };

  const createHmac = (algorithm, key) => {
    const name = nameOf(algorithm);
    if (!(name in DIGESTS)) {
      throw failure(TypeError, 'ERR_CRYPTO_INVALID_DIGEST', `Invalid digest: ${algorithm}; hooks have ${HASHES}`);
    }
    const hmac = new Hash(name, Buffer.from(bytesOf(key, 'utf8', 'key', true)));
    hmac.copy = undefined; // which Node's Hmac does not have
    return hmac;
  };

  // --- comparison and randomness -----------------------------------------------------------

  const timingSafeEqual = (one, other) => {
    [one, other].forEach((value, at) => {
      if (!ArrayBuffer.isView(value) && !(value instanceof ArrayBuffer)) {
        throw failure(TypeError, 'ERR_INVALID_ARG_TYPE',
          `The "buf${at + 1}" argument must be an instance of ArrayBuffer, Buffer, TypedArray, or DataView.`);
      }
    });
    const a = bytesOf(one, 'utf8', 'buf1', true);
    const b = bytesOf(other, 'utf8', 'buf2', true);
    if (a.length !== b.length) {
      throw failure(RangeError, 'ERR_CRYPTO_TIMING_SAFE_EQUAL_LENGTH', 'Input buffers must have the same byte length');
    }
    let difference = 0;
    for (let at = 0; at < a.length; at += 1) difference |= a[at] ^ b[at];
    return difference === 0;
  };

  let seed = null;
  let drawn = 0;
  const draw = (size) => {
    if (seed === null) throw new Error('random bytes exist while a hook is called, not while its file is loaded');
    const made = new Uint8Array(size);
    const block = new Uint8Array(seed.length + 4);
    block.set(seed);
    for (let at = 0; at < size; at += 32) {
      new DataView(block.buffer).setUint32(seed.length, drawn);
      drawn += 1;
      const run = DIGESTS.sha256.run(block);
      made.set(size - at < 32 ? run.subarray(0, size - at) : run, at);
    }
    return made;
  };

  const randomBytes = (size) => {
    if (typeof size !== 'number') {
      throw failure(TypeError, 'ERR_INVALID_ARG_TYPE', 'The "size" argument must be of type number');
    }
    if (!(Number.isInteger(size) && size >= 0 && size <= MAX_RANDOM)) {
      throw failure(RangeError, 'ERR_OUT_OF_RANGE',
        `The value of "size" is out of range. It must be >= 0 && <= ${MAX_RANDOM}. Received ${size}`);
    }
    return Buffer.from(draw(size));
  };

  const randomUUID = () => {
    const bytes = draw(16);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    return hex(bytes).replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
  };

  const getHashes = () => Object.keys(DIGESTS);

  const reseed = (text) => {
    seed = Buffer.from(text, 'hex');
    drawn = 0;
  };

  return {
    reseed,
    members: { createHash, createHmac, timingSafeEqual, randomBytes, randomUUID, getHashes },
    others: 'checkPrime checkPrimeSync createCipheriv createDecipheriv createDiffieHellman '
      + 'createDiffieHellmanGroup createECDH createPrivateKey createPublicKey createSecretKey '
      + 'createSign createVerify diffieHellman generateKey generateKeyPair generateKeyPairSync '
      + 'generateKeySync generatePrime generatePrimeSync getCipherInfo getCiphers getCurves '
      + 'getDiffieHellman getRandomValues hash hkdf hkdfSync pbkdf2 pbkdf2Sync privateDecrypt '
      + 'privateEncrypt publicDecrypt publicEncrypt randomFill randomFillSync randomInt scrypt '
      + 'scryptSync sign verify subtle.digest subtle.sign subtle.verify subtle.encrypt '
      + 'subtle.decrypt subtle.importKey subtle.deriveBits subtle.generateKey',
  };
}
