// Numbers, sizes, times and names as text, the same everywhere on the page.

const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const ONE_DECIMAL = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const MINUTE = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", year: "numeric" });
const SHORT_DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const OPERATOR = "$operator"; // as `embermq.broker.access` has it
const BINARY_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** What a terminal or a browser would obey or hide: control characters, direction overrides, lone surrogates. */
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\p{Cs}/gu;
const INVISIBLE_IN_LINES = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\p{Cs}/gu;

export function count(value) {
  return GROUPED.format(value);
}

/** "1 topic", "2 topics". */
export function counted(value, word) {
  return `${count(value)} ${word}${value === 1 ? "" : "s"}`;
}

export function rate(value) {
  return ONE_DECIMAL.format(value);
}

export function size(bytes) {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < BINARY_UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${count(value)} B` : `${ONE_DECIMAL.format(value)} ${BINARY_UNITS[unit]}`;
}

/** A length of time in its largest fitting unit: 4 s, 12 min, 2 h, 3 d. */
export function duration(milliseconds) {
  const seconds = Math.max(0, milliseconds / 1000);
  if (seconds < 1) return "0 s";
  if (seconds < 100) return `${Math.floor(seconds)} s`;
  if (seconds < 6000) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${count(Math.floor(seconds / 86400))} d`;
}

/** The same from units of two sizes, where the page has room for it: 2 h 14 min. */
export function longDuration(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([length]) => seconds >= length);
  if (first < 0) return "0 s";
  let rest = seconds;
  const words = [];
  for (const [length, unit] of parts.slice(first, first + 2)) {
    const whole = Math.floor(rest / length);
    if (whole) words.push(`${whole} ${unit}`);
    rest -= whole * length;
  }
  return words.join(" ");
}

export function clockTime(us) {
  return CLOCK.format(us / 1000);
}

export function clockTimeExact(us) {
  return `${CLOCK.format(us / 1000)}.${String(Math.floor(us / 1000) % 1000).padStart(3, "0")}`;
}

export function minuteTime(us) {
  return MINUTE.format(us / 1000);
}

export function day(us) {
  return DAY.format(us / 1000);
}

export function shortDay(us) {
  return SHORT_DAY.format(us / 1000);
}

/** Time of day, with the day in front unless it is today. */
export function instant(us, nowUs) {
  return DAY.format(us / 1000) === DAY.format(nowUs / 1000) ? clockTime(us) : `${shortDay(us)}, ${clockTime(us)}`;
}

/** UTC in full, for titles that appear when the pointer rests. */
export function utc(us) {
  return `${isoText(us)} (UTC)`;
}

/** RFC 3339 with microseconds. */
export function isoText(us) {
  const seconds = Math.floor(us / 1_000_000);
  const rest = String(Math.round(us - seconds * 1_000_000)).padStart(6, "0");
  return `${new Date(seconds * 1000).toISOString().slice(0, 19)}.${rest}Z`;
}

/** Microseconds since 1970 of an RFC 3339 text; NaN if it is none. */
export function microseconds(text) {
  const found = /^(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:\.(\d{1,6})\d*)?(Z|[+-]\d{2}:\d{2})$/.exec(text ?? "");
  if (!found) return NaN;
  return Date.parse(found[1] + found[3]) * 1000 + Number((found[2] ?? "0").padEnd(6, "0"));
}

/** An instant as the HTTP interface reads it: seconds since 1970. */
export function asked(us) {
  const seconds = Math.floor(us / 1_000_000);
  return `${seconds}.${String(Math.round(us - seconds * 1_000_000)).padStart(6, "0")}`;
}

/** One line of text in which nothing is invisible. */
export function visible(text) {
  return text.replace(INVISIBLE, escaped);
}

/** The same for text of several lines. */
export function visibleLines(text) {
  return text.replace(INVISIBLE_IN_LINES, escaped);
}

function escaped(character) {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/** Who published a message: a client by its identifier, or an operator, whose login over HTTP the log names. */
export function sender(clientId) {
  if (clientId === OPERATOR) return "operator";
  return clientId.startsWith(`${OPERATOR}/`) ? `${visible(clientId.slice(OPERATOR.length + 1))} (operator, over HTTP)` : visible(clientId);
}

/** Two texts of one line, each cut so that the first place where they differ is in sight. */
export function differingCuts(first, second, lengthMax) {
  let same = 0;
  while (same < first.length && first[same] === second[same]) same += 1;
  const begin = Math.max(0, Math.min(same - Math.floor(lengthMax / 3), Math.max(first.length, second.length) - lengthMax));
  const cut = (text) => `${begin > 0 ? "…" : ""}${text.slice(begin, begin + lengthMax)}${text.length > begin + lengthMax ? "…" : ""}`;
  return [cut(first), cut(second)];
}

/** A long text cut in its middle. */
export function middleCut(text, lengthMax) {
  if (text.length <= lengthMax) return text;
  const head = Math.ceil((lengthMax - 1) * 0.6);
  return `${text.slice(0, head)}…${text.slice(text.length - (lengthMax - 1 - head))}`;
}
