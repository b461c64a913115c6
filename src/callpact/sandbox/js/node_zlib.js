// Node's `zlib` as far as hooks have it: what unpacks deflate and gzip. One function expression;
// the driver calls it once, before any code of a file runs. It needs `Buffer`.
//
// Errors have Node's words and codes. The output is bounded, so that a small input cannot become
// a large one.
({ limits }) => {
  const { Buffer, Uint8Array, Uint16Array, Int32Array, ArrayBuffer } = globalThis;
  const MAX_OUTPUT = limits.unpacked;

  const wrong = (message) => Object.assign(new Error(message), { code: 'Z_DATA_ERROR', errno: -3 });
  const ended = () =>
    Object.assign(new Error('unexpected end of file'), { code: 'Z_BUF_ERROR', errno: -5 });

  // --- Huffman codes -----------------------------------------------------------------------

  const LENGTHS = [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83,
    99, 115, 131, 163, 195, 227, 258];
  const LENGTH_BITS = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5,
    5, 5, 0];
  const DISTANCES = [1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769,
    1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577];
  const DISTANCE_BITS = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10,
    11, 11, 12, 12, 13, 13];
  const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

  // A table by the next bits of the input, as many as the longest code has: symbol * 16 + length.
  // A code with one symbol may be incomplete where zlib allows it.
  const table = (lengths, mayBeIncomplete, complaint) => {
    const counts = new Uint16Array(16);
    let longest = 0;
    for (let at = 0; at < lengths.length; at += 1) {
      counts[lengths[at]] += 1;
      if (lengths[at] > longest) longest = lengths[at];
    }
    if (longest === 0) return { bits: 1, entries: new Int32Array(2).fill(-1) };
    let left = 1;
    const next = new Uint16Array(17);
    for (let bits = 1, code = 0; bits < 16; bits += 1) {
      left = left * 2 - counts[bits];
      if (left < 0) throw wrong(complaint);
      next[bits] = code;
      code = (code + counts[bits]) << 1;
    }
    if (left > 0 && !(mayBeIncomplete && longest === 1)) throw wrong(complaint);
    const entries = new Int32Array(1 << longest).fill(-1);
    for (let symbol = 0; symbol < lengths.length; symbol += 1) {
      const length = lengths[symbol];
      if (length === 0) continue;
      let code = next[length];
      next[length] += 1;
      let reversed = 0;
      for (let bit = 0; bit < length; bit += 1) {
        reversed = (reversed << 1) | (code & 1);
        code >>= 1;
      }
      const step = 1 << length;
      const entry = symbol * 16 + length;
      for (let at = reversed; at < entries.length; at += step) entries[at] = entry;
    }
    return { bits: longest, entries };
  };

  const fixedLengths = new Uint16Array(288).fill(8);
  fixedLengths.fill(9, 144, 256).fill(7, 256, 280);
  const fixed = [
    table(fixedLengths, false, ''),
    table(new Uint16Array(32).fill(5), false, ''),
  ];

  // --- one stream --------------------------------------------------------------------------

  // Unpacks one deflate stream from `start`; gives its output and where it ended.
  const inflated = (input, start, most) => {
    const size = input.length;
    let at = start;
    let held = 0; // bits that were read and not used, the next one lowest
    let count = 0;
    let out = new Uint8Array(Math.min(most, Math.max(1024, (size - start) * 4)));
    let used = 0;

    const need = (bits) => {
      while (count < bits) {
        if (at >= size) throw ended();
        held |= input[at] << count;
        at += 1;
        count += 8;
      }
    };
    const take = (bits) => {
      need(bits);
      const value = held & ((1 << bits) - 1);
      held >>>= bits;
      count -= bits;
      return value;
    };
    const symbol = ({ bits, entries }, complaint) => {
      while (count < bits && at < size) {
        held |= input[at] << count;
        at += 1;
        count += 8;
      }
      const entry = entries[held & ((1 << bits) - 1)];
      if (entry < 0) {
        if (count < bits && at >= size) throw ended();
        throw wrong(complaint);
      }
      const length = entry & 15;
      if (length > count) throw ended();
      held >>>= length;
      count -= length;
      return entry >> 4;
    };
    const room = (more) => {
      if (used + more <= out.length) return;
      if (used + more > most) {
        throw Object.assign(new RangeError(`Cannot create a Buffer larger than ${most} bytes`), {
          code: 'ERR_BUFFER_TOO_LARGE',
        });
      }
      const grown = new Uint8Array(Math.min(most, Math.max(out.length * 2, used + more)));
      grown.set(out.subarray(0, used));
      out = grown;
    };

    const stored = () => {
      held >>>= count & 7;
      count -= count & 7;
      const length = take(16);
      if ((take(16) ^ 0xffff) !== length) throw wrong('invalid stored block lengths');
      // What was read ahead is whole bytes.
      at -= count >> 3;
      held = count = 0;
      if (at + length > size) throw ended();
      room(length);
      out.set(input.subarray(at, at + length), used);
      at += length;
      used += length;
    };

    const dynamic = () => {
      const literals = take(5) + 257;
      const distances = take(5) + 1;
      const codes = take(4) + 4;
      if (literals > 286 || distances > 30) throw wrong('too many length or distance symbols');
      const own = new Uint16Array(19);
      for (let i = 0; i < codes; i += 1) own[ORDER[i]] = take(3);
      if (own.every((length) => length === 0)) throw wrong('invalid code lengths set');
      const code = table(own, false, 'invalid code lengths set');
      const lengths = new Uint16Array(literals + distances);
      for (let i = 0; i < lengths.length;) {
        const kind = symbol(code, 'invalid code lengths set');
        if (kind < 16) {
          lengths[i] = kind;
          i += 1;
          continue;
        }
        if (kind === 16 && i === 0) {
          need(2);
          throw wrong('invalid bit length repeat');
        }
        const value = kind === 16 ? lengths[i - 1] : 0;
        const times = kind === 16 ? take(2) + 3 : kind === 17 ? take(3) + 3 : take(7) + 11;
        if (i + times > lengths.length) throw wrong('invalid bit length repeat');
        lengths.fill(value, i, i + times);
        i += times;
      }
      if (lengths[256] === 0) throw wrong('invalid code -- missing end-of-block');
      return [
        table(lengths.subarray(0, literals), true, 'invalid literal/lengths set'),
        table(lengths.subarray(literals), true, 'invalid distances set'),
      ];
    };

    const block = (literals, distances) => {
      const literalBits = literals.bits;
      const literalEntries = literals.entries;
      const literalMask = (1 << literalBits) - 1;
      for (;;) {
        // The way of a literal, which is most of the work, without a call.
        while (count < literalBits && at < size) {
          held |= input[at] << count;
          at += 1;
          count += 8;
        }
        const entry = literalEntries[held & literalMask];
        const kind = entry >> 4;
        if (entry >= 0 && kind < 256 && (entry & 15) <= count) {
          held >>>= entry & 15;
          count -= entry & 15;
          if (used === out.length) room(1);
          out[used] = kind;
          used += 1;
          continue;
        }
        const found = symbol(literals, 'invalid literal/length code');
        if (found === 256) return;
        if (found > 285) throw wrong('invalid literal/length code');
        const length = LENGTHS[found - 257] + take(LENGTH_BITS[found - 257]);
        const far = symbol(distances, 'invalid distance code');
        if (far > 29) throw wrong('invalid distance code');
        const distance = DISTANCES[far] + take(DISTANCE_BITS[far]);
        if (distance > used) throw wrong('invalid distance too far back');
        room(length);
        if (distance >= length) {
          out.copyWithin(used, used - distance, used - distance + length);
        } else if (distance === 1) {
          out.fill(out[used - 1], used, used + length);
        } else {
          for (let i = 0; i < length; i += 1) out[used + i] = out[used - distance + i];
        }
        used += length;
      }
    };

    for (let isLast = false; !isLast;) {
      isLast = take(1) === 1;
      const kind = take(2);
      if (kind === 0) stored();
      else if (kind === 1) block(...fixed);
      else if (kind === 2) block(...dynamic());
      else throw wrong('invalid block type');
    }
    return { output: out.subarray(0, used), end: at - (count >> 3) };
  };

  // --- formats -----------------------------------------------------------------------------

  const adler32 = (bytes) => {
    let a = 1;
    let b = 0;
    for (let at = 0; at < bytes.length;) {
      const stop = Math.min(at + 3800, bytes.length); // until then no sum needs more than 32 bits
      for (; at < stop; at += 1) {
        a += bytes[at];
        b += a;
      }
      a %= 65521;
      b %= 65521;
    }
    return b * 65536 + a;
  };

  const CRC = Int32Array.from({ length: 256 }, (_, at) => {
    let value = at;
    for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
    return value;
  });
  const crc32 = (bytes) => {
    let value = -1;
    for (let at = 0; at < bytes.length; at += 1) value = CRC[(value ^ bytes[at]) & 255] ^ (value >>> 8);
    return ~value >>> 0;
  };

  const little = (bytes, at) =>
    (bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24)) >>> 0;

  const raw = (input, most) => inflated(input, 0, most).output;

  const zlib = (input, most) => {
    if (input.length < 2) throw ended();
    if ((input[0] * 256 + input[1]) % 31 !== 0) throw wrong('incorrect header check');
    if ((input[0] & 15) !== 8) throw wrong('unknown compression method');
    if (input[0] >> 4 > 7) throw wrong('invalid window size');
    if (input[1] & 32) {
      throw Object.assign(new Error('Missing dictionary'), { code: 'Z_NEED_DICT', errno: 2 });
    }
    const { output, end } = inflated(input, 2, most);
    if (end + 4 > input.length) throw ended();
    const [a, b, c, d] = input.subarray(end, end + 4);
    if (((a << 24) | (b << 16) | (c << 8) | d) >>> 0 !== adler32(output)) {
      throw wrong('incorrect data check');
    }
    return output;
  };

  const gzipBody = (input, start) => {
    let at = start + 10;
    const flags = input[start + 3];
    if (at > input.length) throw ended();
    const skipText = () => {
      const end = input.indexOf(0, at);
      if (end < 0) throw ended();
      at = end + 1;
    };
    if (flags & 4) {
      if (at + 2 > input.length) throw ended();
      at += 2 + input[at] + input[at + 1] * 256;
    }
    if (flags & 8) skipText();
    if (flags & 16) skipText();
    if (flags & 2) {
      if (at + 2 > input.length) throw ended();
      if ((crc32(input.subarray(start, at)) & 0xffff) !== input[at] + input[at + 1] * 256) {
        throw wrong('header crc mismatch');
      }
      at += 2;
    }
    if (at > input.length) throw ended();
    return at;
  };

  const gzip = (input, most) => {
    const members = [];
    let at = 0;
    let room = most;
    do {
      const begins = input.subarray(at, at + 2);
      if (begins[0] !== 0x1f || (begins.length > 1 && begins[1] !== 0x8b)) {
        if (begins.length === 0) throw ended();
        if (begins.length > 1) throw wrong('incorrect header check');
      }
      if (begins.length < 2) throw ended();
      if (input.length > at + 2 && input[at + 2] !== 8) throw wrong('unknown compression method');
      if (input.length > at + 3 && input[at + 3] & 0xe0) throw wrong('unknown header flags set');
      const { output, end } = inflated(input, gzipBody(input, at), room);
      if (end + 4 > input.length) throw ended();
      if (little(input, end) !== crc32(output)) throw wrong('incorrect data check');
      if (end + 8 > input.length) throw ended();
      if (little(input, end + 4) !== output.length) throw wrong('incorrect length check');
      members.push(output);
      room -= output.length;
      at = end + 8;
      // Another member may follow; zeros are padding.
    } while (at < input.length && input[at] !== 0);
    return members.length === 1 ? members[0] : Buffer.concat(members);
  };

  const either = (input, most) => {
    if (input.length === 0) throw ended();
    if (input[0] !== 0x1f) return zlib(input, most);
    if (input.length > 1 && input[1] !== 0x8b) return zlib(input, most);
    return gzip(input, most);
  };

  // --- Node's functions --------------------------------------------------------------------

  const bytesOf = (data) => {
    if (typeof data === 'string') return Buffer.from(data);
    if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (data instanceof ArrayBuffer) return new Uint8Array(data);
    throw Object.assign(new TypeError('The "buffer" argument must be of type string or an instance of '
      + 'Buffer, TypedArray, DataView, or ArrayBuffer'), { code: 'ERR_INVALID_ARG_TYPE' });
  };

  const unpacking = (unpack) => (data, options = {}) => {
    const most = Math.min(options.maxOutputLength ?? MAX_OUTPUT, MAX_OUTPUT);
    return Buffer.from(unpack(bytesOf(data), most));
  };

  const later = (unpack) => (data, options, callback = options) => {
    const settings = options === callback ? {} : options;
    bytesOf(data);
    Promise.resolve().then(() => {
      let result;
      try {
        result = unpack(data, settings);
      } catch (error) {
        callback(error);
        return;
      }
      callback(null, result);
    });
  };

  const members = {};
  for (const [name, unpack] of Object.entries({ inflateRaw: raw, inflate: zlib, gunzip: gzip, unzip: either })) {
    members[`${name}Sync`] = unpacking(unpack);
    members[name] = later(members[`${name}Sync`]);
  }

  return {
    members,
    // Public files that declare `zlib` call these by their bare names.
    globals: ['inflateRawSync', 'inflateSync', 'gunzipSync', 'unzipSync'],
    others: 'brotliCompress brotliCompressSync brotliDecompress brotliDecompressSync crc32 '
      + 'createBrotliCompress createBrotliDecompress createDeflate createDeflateRaw createGunzip '
      + 'createGzip createInflate createInflateRaw createUnzip deflate deflateRaw deflateRawSync '
      + 'deflateSync gzip gzipSync',
  };
}
