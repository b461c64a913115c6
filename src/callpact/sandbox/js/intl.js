// `Intl.DateTimeFormat` for hooks, in the locales en-US and de-DE, and the methods of dates that
// use it. One function expression; the driver calls it once, before any code of a file runs.
// `zones` are the time zones of the host by name (zones.py).
//
// Results are those of Node. Whatever is not here (other locales, names of time zones, sets of
// fields that no one writes, other classes of Intl) throws an error that names it.
({ zones }) => {
  const { Date, RangeError, TypeError, Error } = globalThis;
  const LOCALES = {
    __proto__: null, en: 'en', 'en-us': 'en-US', de: 'de', 'de-de': 'de-DE',
  };
  const EN = {
    months: {
      long: 'January February March April May June July August September October November December',
      short: 'Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec',
    },
    weekdays: {
      long: 'Sunday Monday Tuesday Wednesday Thursday Friday Saturday',
      short: 'Sun Mon Tue Wed Thu Fri Sat',
    },
    at: ' at ', decimal: '.', isTwelve: true,
    universal: 'Coordinated Universal Time',
  };
  const DE = {
    months: {
      long: 'Januar Februar März April Mai Juni Juli August September Oktober November Dezember',
      short: 'Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez.',
      alone: 'Jan Feb Mär Apr Mai Jun Jul Aug Sep Okt Nov Dez',
    },
    weekdays: {
      long: 'Sonntag Montag Dienstag Mittwoch Donnerstag Freitag Samstag',
      short: 'So. Mo. Di. Mi. Do. Fr. Sa.',
      alone: 'So Mo Di Mi Do Fr Sa',
    },
    at: ' um ', decimal: ',', isTwelve: false,
    universal: 'Koordinierte Weltzeit',
  };

  const unavailable = (what) => new RangeError(`Intl in hooks has no ${what}`);

  // --- options -----------------------------------------------------------------------------

  const NUMBERS = ['numeric', '2-digit'];
  const NAMES = ['narrow', 'short', 'long'];
  const FIELDS = {
    weekday: NAMES,
    era: NAMES,
    year: NUMBERS,
    month: [...NUMBERS, ...NAMES],
    day: NUMBERS,
    dayPeriod: NAMES,
    hour: NUMBERS,
    minute: NUMBERS,
    second: NUMBERS,
    timeZoneName: ['short', 'long', 'shortOffset', 'longOffset', 'shortGeneric', 'longGeneric'],
  };
  const STYLES = ['full', 'long', 'medium', 'short'];
  const DATE = ['weekday', 'year', 'month', 'day'];
  const TIME = ['dayPeriod', 'hour', 'minute', 'second', 'fractionalSecondDigits'];

  const chosen = (options, name, values) => {
    const value = options[name];
    if (value === undefined) return undefined;
    const text = `${value}`;
    if (!values.includes(text)) {
      throw new RangeError(`Value ${text} out of range for Intl.DateTimeFormat options property ${name}`);
    }
    return text;
  };

  const localeOf = (locales) => {
    const first = typeof locales === 'string' ? locales : locales?.[0];
    if (first === undefined) return 'en-US';
    if (typeof first !== 'string') throw new TypeError('Incorrect locale information provided');
    if (!/^[a-z]{2,8}(-[a-z0-9]{1,8})*$/i.test(first)) {
      throw new RangeError('Incorrect locale information provided');
    }
    const known = LOCALES[first.toLowerCase()];
    if (known === undefined) throw unavailable(`locale '${first}': it has en-US and de-DE`);
    return known;
  };

  const byCase = { __proto__: null };
  Object.keys(zones).forEach((name) => { byCase[name.toLowerCase()] = name; });
  const UNIVERSAL = /^(?:etc\/)?(?:utc|gmt|uct|universal|zulu|greenwich|gmt[+-]?0)$/;

  const zoneOf = (given) => {
    if (given === undefined) return 'UTC';
    const lower = `${given}`.toLowerCase();
    if (UNIVERSAL.test(lower)) return 'UTC';
    const name = byCase[lower];
    if (name === undefined) throw new RangeError(`Invalid time zone specified: ${given}`);
    return name;
  };

  // --- time zones --------------------------------------------------------------------------

  // A zone is `RULE;TIME,…;OFFSET,…` in seconds: a rule of POSIX for the time after the last
  // change, and when which offset began.
  const opened = { __proto__: null };
  const changesOf = (name) => {
    if (opened[name] === undefined) {
      const [rule, times, offsets] = zones[name].split(';');
      opened[name] = {
        rule, times: times.split(',').map(Number), offsets: offsets.split(',').map(Number),
      };
    }
    return opened[name];
  };

  const RULE = /^(?:[A-Za-z]{3,}|<[^>]+>)([+-]?[\d:]+)(?:(?:[A-Za-z]{3,}|<[^>]+>)([+-]?[\d:]+)?,M([\d.]+)(?:\/([+-]?[\d:]+))?,M([\d.]+)(?:\/([+-]?[\d:]+))?)?$/;
  const secondsOf = (text) => {
    const [hours, minutes = '0', seconds = '0'] = text.replace(/^[+-]/, '').split(':');
    return (text[0] === '-' ? -1 : 1) * (hours * 3600 + minutes * 60 + +seconds);
  };
  // When a rule like 3.5.0 (month, week, weekday) holds in a year, in local seconds.
  const momentOf = (rule, time, year) => {
    const [month, week, weekday] = rule.split('.').map(Number);
    const first = new Date(Date.UTC(year, month - 1, 1)).getUTCDay();
    let day = 1 + ((weekday - first + 7) % 7) + (week - 1) * 7;
    while (day > new Date(Date.UTC(year, month, 0)).getUTCDate()) day -= 7;
    return Date.UTC(year, month - 1, day) / 1000 + (time === undefined ? 7200 : secondsOf(time));
  };
  const ruledOffset = (rule, seconds) => {
    const found = RULE.exec(rule);
    if (found === null) throw unavailable(`rule for the time zone after ${rule}`);
    const [, winter, summer, from, fromTime, until, untilTime] = found;
    const usual = -secondsOf(winter);
    if (from === undefined) return usual;
    const other = summer === undefined ? usual + 3600 : -secondsOf(summer);
    const year = new Date((seconds + usual) * 1000).getUTCFullYear();
    const begin = momentOf(from, fromTime, year) - usual;
    const end = momentOf(until, untilTime, year) - other;
    const isOther = begin < end
      ? seconds >= begin && seconds < end
      : seconds >= begin || seconds < end;
    return isOther ? other : usual;
  };

  const offsetOf = (zone, milliseconds) => {
    if (zone === 'UTC') return 0;
    const seconds = Math.floor(milliseconds / 1000);
    const { rule, times, offsets } = changesOf(zone);
    if (rule !== '' && seconds >= times[times.length - 1]) {
      return ruledOffset(rule, seconds);
    }
    let low = 0;
    let high = times.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (times[middle] <= seconds) low = middle;
      else high = middle - 1;
    }
    return offsets[low];
  };

  const two = (number) => `${number}`.padStart(2, '0');
  const zoneName = (kind, zone, offset, words) => {
    if (kind === 'shortOffset' || kind === 'longOffset') {
      const size = Math.abs(offset);
      const [hours, minutes, seconds] = [Math.floor(size / 3600), Math.floor(size / 60) % 60, size % 60];
      const tail = seconds ? `:${two(seconds)}` : '';
      const sign = offset < 0 ? '-' : '+';
      if (kind === 'longOffset') return `GMT${sign}${two(hours)}:${two(minutes)}${tail}`;
      return `GMT${sign}${hours}${minutes || seconds ? `:${two(minutes)}` : ''}${tail}`;
    }
    if (zone === 'UTC' && kind === 'short') return 'UTC';
    if (zone === 'UTC' && kind === 'long') return words.universal;
    throw unavailable(`name of the time zone ${zone} (timeZoneName '${kind}'): use 'shortOffset' or 'longOffset'`);
  };

  // --- patterns ----------------------------------------------------------------------------

  // A pattern is a list of fields and literal texts; a field is [type, style].
  const literal = (text) => ['literal', text];

  const datePattern = (has, words) => {
    const { weekday, year, month, day } = has;
    const present = DATE.filter((name) => has[name] !== undefined).join(' ');
    const isAlone = present === 'weekday' || present === 'month';
    const style = (value) => (isAlone && value === 'short' ? 'alone' : value);
    const E = ['weekday', style(weekday)];
    const M = ['month', style(month)];
    const [y, d] = [['year', year], ['day', day]];
    if (present === '') return [];
    if (!present.includes(' ')) return [{ weekday: E, year: y, month: M, day: d }[present]];
    if (present === 'weekday day') {
      return words === EN ? [d, literal(' '), E] : [E, literal(', '), d, literal('.')];
    }
    if (month === undefined || (day === undefined && (weekday !== undefined || year === undefined))) {
      throw unavailable(`format of dates with ${present.replaceAll(' ', ', ')} alone`);
    }
    const made = weekday === undefined ? [] : [E, literal(', ')];
    const isNumber = NUMBERS.includes(month);
    if (day === undefined) return [...made, M, literal(isNumber ? '/' : ' '), y];
    if (words === EN) {
      made.push(M, literal(isNumber ? '/' : ' '), d);
      return year === undefined ? made : [...made, literal(isNumber ? '/' : ', '), y];
    }
    if (!isNumber) made.push(d, literal('. '), M);
    else if (present === 'month day' && month === '2-digit') {
      made.push(['day', '2-digit'], literal('.'), M, literal('.'));
    } else made.push(d, literal('.'), M, literal('.'));
    if (year === undefined) return made;
    return isNumber ? [...made, y] : [...made, literal(' '), y];
  };

  // The nearest pattern that German has for these fields decides, not what was asked of the hour.
  const isShortGermanHour = ({ minute, second, timeZoneName }) => {
    const [isWideMinute, isWideSecond] = [minute === '2-digit', second === '2-digit'];
    if (minute === undefined) return false;
    if (timeZoneName === undefined) return isWideMinute && second !== 'numeric';
    if (timeZoneName === 'shortOffset') return second !== undefined && (isWideMinute || isWideSecond);
    if (timeZoneName === 'longOffset') return isWideMinute && isWideSecond;
    return second !== undefined;
  };

  const timePattern = (has, words, isTwelve) => {
    const { hour, minute, second, fractionalSecondDigits: digits } = has;
    const parts = [];
    if (hour !== undefined) {
      if (minute === undefined && second !== undefined) throw unavailable('format of times with hour and second alone');
      if (has.timeZoneName !== undefined && minute === undefined && !isTwelve && words === EN) {
        throw unavailable('format of an hour of 24 and a time zone alone');
      }
      const isShort = hour === 'numeric' && (isTwelve || (words === DE && isShortGermanHour(has)));
      parts.push(['hour', isShort ? 'numeric' : '2-digit']);
      if (minute === undefined && !isTwelve && words === DE) parts.push(literal(' Uhr'));
    }
    const isPair = hour !== undefined || (minute !== undefined && second !== undefined);
    for (const [name, style] of [['minute', minute], ['second', second]]) {
      if (style === undefined) continue;
      if (parts.length) parts.push(literal(':'));
      parts.push([name, isPair ? '2-digit' : 'numeric']);
    }
    if (digits !== undefined) {
      if (minute === undefined || second === undefined) {
        throw unavailable('fractionalSecondDigits without minute and second');
      }
      parts.push(literal(words.decimal), ['fractionalSecond', digits]);
    }
    if (hour !== undefined && isTwelve) parts.push(literal('\u202f'), ['dayPeriod']);
    return parts;
  };

  const joined = (has, words, isTwelve) => {
    const pattern = datePattern(has, words);
    const time = timePattern(has, words, isTwelve);
    if (time.length && pattern.length === 1 && has.weekday !== undefined) {
      throw unavailable('format of a weekday and a time alone');
    }
    const isNamed = has.timeZoneName !== undefined;
    if (time.length && isNamed) time.push(literal(' '));
    if (isNamed) time.push(['timeZoneName', has.timeZoneName]);
    if (!pattern.length || !time.length) return [...pattern, ...time];
    return [...pattern, literal(has.month === 'long' ? words.at : ', '), ...time];
  };

  const DATE_STYLES = {
    full: { weekday: 'long', year: 'numeric', month: 'long', day: 'numeric' },
    long: { year: 'numeric', month: 'long', day: 'numeric' },
    medium: { year: 'numeric', month: 'short', day: 'numeric' },
    short: { year: '2-digit', month: 'numeric', day: 'numeric' },
  };
  const DE_STYLES = {
    ...DATE_STYLES,
    medium: { year: 'numeric', month: '2-digit', day: '2-digit' },
    short: { year: '2-digit', month: '2-digit', day: '2-digit' },
  };
  const TIME_STYLES = {
    full: { hour: 'numeric', minute: '2-digit', second: 'numeric', timeZoneName: 'long' },
    long: { hour: 'numeric', minute: '2-digit', second: 'numeric', timeZoneName: 'short' },
    medium: { hour: 'numeric', minute: '2-digit', second: 'numeric' },
    short: { hour: 'numeric', minute: 'numeric' },
  };

  // --- formatting --------------------------------------------------------------------------

  const named = (list, style, at) => {
    if (style === 'narrow') return list.long.split(' ')[at][0];
    return (list[style] ?? list.short).split(' ')[at];
  };
  const number = (value, style) => (style === '2-digit' ? two(value % 100) : `${value}`);

  const partsOf = (format, value) => {
    const time = value === undefined ? Date.now() : Number(value);
    if (!(Math.abs(time) <= 8.64e15)) throw new RangeError('Invalid time value');
    const { words, zone, pattern, isTwelve } = format;
    const whole = Math.trunc(time);
    const offset = offsetOf(zone, whole);
    const local = new Date(whole + offset * 1000);
    const year = local.getUTCFullYear();
    const hour = local.getUTCHours();
    const texts = {
      weekday: (style) => named(words.weekdays, style, local.getUTCDay()),
      year: (style) => number(year > 0 ? year : 1 - year, style),
      month: (style) => (NUMBERS.includes(style)
        ? number(local.getUTCMonth() + 1, style)
        : named(words.months, style, local.getUTCMonth())),
      day: (style) => number(local.getUTCDate(), style),
      hour: (style) => number(isTwelve ? hour % 12 || 12 : hour, style),
      minute: (style) => number(local.getUTCMinutes(), style),
      second: (style) => number(local.getUTCSeconds(), style),
      fractionalSecond: (digits) => `${local.getUTCMilliseconds()}`.padStart(3, '0').slice(0, digits),
      dayPeriod: () => (hour < 12 ? 'AM' : 'PM'),
      timeZoneName: (kind) => zoneName(kind, zone, offset, words),
      literal: (text) => text,
    };
    const parts = [];
    for (const [type, style] of pattern) {
      const text = texts[type](style);
      if (type === 'literal' && parts.at(-1)?.type === 'literal') parts.at(-1).value += text;
      else parts.push({ type, value: text });
    }
    return parts;
  };

  const made = (locales, given, required, defaults) => {
    const locale = localeOf(locales);
    const words = locale.startsWith('de') ? DE : EN;
    if (given === null) throw new TypeError('Cannot convert undefined or null to object');
    const options = given === undefined ? {} : Object(given);
    for (const name of ['calendar', 'numberingSystem']) {
      if (options[name] !== undefined && options[name] !== { calendar: 'gregory', numberingSystem: 'latn' }[name]) {
        throw unavailable(`${name} '${options[name]}'`);
      }
    }
    const hour12 = options.hour12 === undefined ? undefined : Boolean(options.hour12);
    const hourCycle = chosen(options, 'hourCycle', ['h11', 'h12', 'h23', 'h24']);
    const zone = zoneOf(options.timeZone);
    const has = {};
    for (const [name, values] of Object.entries(FIELDS)) has[name] = chosen(options, name, values);
    const digits = options.fractionalSecondDigits;
    if (digits !== undefined) {
      if (!(digits >= 1 && digits < 4)) throw new RangeError('fractionalSecondDigits value is out of range.');
      has.fractionalSecondDigits = Math.floor(digits);
    }
    const dateStyle = chosen(options, 'dateStyle', STYLES);
    const timeStyle = chosen(options, 'timeStyle', STYLES);
    const isStyled = dateStyle !== undefined || timeStyle !== undefined;
    if (isStyled) {
      const name = Object.keys(has).find((key) => has[key] !== undefined);
      if (name !== undefined) {
        throw new TypeError(`Can't set option ${name} when ${dateStyle === undefined ? 'timeStyle' : 'dateStyle'} is used`);
      }
      if (required === 'date' && timeStyle !== undefined) throw new TypeError('Invalid option : timeStyle');
      if (required === 'time' && dateStyle !== undefined) throw new TypeError('Invalid option : dateStyle');
      Object.assign(has, (words === DE ? DE_STYLES : DATE_STYLES)[dateStyle], TIME_STYLES[timeStyle]);
      // Seconds of a style are those of its pattern, whatever German does with single fields.
      if (words === DE && timeStyle !== undefined) has.hour = '2-digit';
    } else {
      const wanted = { date: DATE, time: TIME, any: [...DATE, ...TIME] }[required];
      if (wanted.every((name) => has[name] === undefined)) {
        if (defaults !== 'time') Object.assign(has, { year: 'numeric', month: 'numeric', day: 'numeric' });
        if (defaults !== 'date') Object.assign(has, { hour: 'numeric', minute: 'numeric', second: 'numeric' });
      }
    }
    if (has.era !== undefined) throw unavailable('era');
    if (has.dayPeriod !== undefined) throw unavailable('dayPeriod');
    const cycle = hour12 === undefined ? hourCycle : hour12 ? 'h12' : 'h23';
    if (has.hour !== undefined && (cycle === 'h11' || cycle === 'h24')) throw unavailable(`hourCycle '${cycle}'`);
    const isTwelve = cycle === undefined ? words.isTwelve : cycle === 'h12';
    const pattern = joined(has, words, isTwelve);
    const fields = pattern.map(([type, style]) =>
      [type === 'fractionalSecond' ? `${type}Digits` : type, style === 'alone' ? 'short' : style]);
    const shown = isStyled ? { dateStyle, timeStyle } : Object.fromEntries(fields);
    return { locale, words, zone, isTwelve, shown, hasHour: has.hour !== undefined, pattern };
  };

  const RESOLVED = ['weekday', 'year', 'month', 'day', 'hour', 'minute', 'second',
    'fractionalSecondDigits', 'timeZoneName', 'dateStyle', 'timeStyle'];
  // Node's texts have a plain space where its parts have a narrow one.
  const textOf = (format, value) =>
    partsOf(format, value).map((part) => part.value).join('').replaceAll('\u202f', ' ');

  function DateTimeFormat(locales, options) {
    const format = made(locales, options, 'any', 'date');
    const self = new.target === undefined ? Object.create(DateTimeFormat.prototype) : this;
    const define = (name, value) =>
      Object.defineProperty(self, name, { value, writable: true, configurable: true });
    // Bound, as callers pass `format` on to `map`.
    define('format', (value) => textOf(format, value));
    define('formatToParts', (value) => partsOf(format, value));
    define('resolvedOptions', () => {
      const told = {
        locale: format.locale, calendar: 'gregory', numberingSystem: 'latn', timeZone: format.zone,
      };
      if (format.hasHour) {
        told.hourCycle = format.isTwelve ? 'h12' : 'h23';
        told.hour12 = format.isTwelve;
      }
      RESOLVED.forEach((name) => { if (format.shown[name] !== undefined) told[name] = format.shown[name]; });
      return told;
    });
    return self;
  }
  const missing = (name) => function absent() {
    throw new Error(`${name} does not exist in hooks: of Intl they have DateTimeFormat`);
  };
  for (const name of ['formatRange', 'formatRangeToParts']) {
    DateTimeFormat.prototype[name] = missing(`Intl.DateTimeFormat.${name}`);
  }
  DateTimeFormat.supportedLocalesOf = (locales) =>
    [locales ?? []].flat().filter((name) => typeof name === 'string' && name.toLowerCase() in LOCALES);

  // --- dates and numbers -------------------------------------------------------------------

  const replace = (owner, name, value) =>
    Object.defineProperty(owner, name, { value, writable: true, configurable: true });
  const timeValue = Date.prototype.getTime;
  for (const [name, required, defaults] of [
    ['toLocaleString', 'any', 'all'], ['toLocaleDateString', 'date', 'date'], ['toLocaleTimeString', 'time', 'time'],
  ]) {
    replace(Date.prototype, name, function inLocale(locales, options) {
      const value = timeValue.call(this);
      if (value !== value) return 'Invalid Date';
      return textOf(made(locales, options, required, defaults), value);
    });
  }
  // What the engine has ignores the locale: no result is better than a wrong one.
  replace(Number.prototype, 'toLocaleString', missing('Number.prototype.toLocaleString'));
  replace(BigInt.prototype, 'toLocaleString', missing('BigInt.prototype.toLocaleString'));

  const Intl = { DateTimeFormat };
  for (const name of ['Collator', 'DisplayNames', 'DurationFormat', 'ListFormat', 'Locale', 'NumberFormat',
    'PluralRules', 'RelativeTimeFormat', 'Segmenter', 'getCanonicalLocales', 'supportedValuesOf']) {
    Intl[name] = missing(`Intl.${name}`);
  }
  return Intl;
}
