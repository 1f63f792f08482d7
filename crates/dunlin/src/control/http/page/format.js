// Numbers and times for people.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

// A count.
export const count = (n) => whole.format(n);

// So many things of a kind.
export const many = (n, one, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;

// A number in few characters: 1.2 k.
export function short(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return '–';
  const size = Math.abs(n);
  if (size >= 1e9) return `${digits(n / 1e9)} G`;
  if (size >= 1e6) return `${digits(n / 1e6)} M`;
  if (size >= 1e4) return `${digits(n / 1e3)} k`;
  return digits(n);
}

function digits(n) {
  const size = Math.abs(n);
  if (size >= 100 || Number.isInteger(n)) return whole.format(n);
  const places = size >= 10 ? 1 : 2;
  return size > 0 && size < 0.01 ? '<0.01' : String(Number(n.toFixed(places)));
}

// Bytes.
export function bytes(n) {
  if (n === null || n === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  let value = n;
  while (Math.abs(value) >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${digits(at === 0 ? Math.round(value) : value)} ${units[at]}`;
}

// A time in microseconds.
export function micros(us) {
  if (us === null || us === undefined) return '–';
  if (us >= 1e6) return `${digits(us / 1e6)} s`;
  if (us >= 1e3) return `${digits(us / 1e3)} ms`;
  return `${digits(us)} µs`;
}

// A share, from 0 to 1.
export const percent = (share) => (share === null || share === undefined ? '–' : `${digits(share * 100)} %`);

// So many a second, so many a minute.
export const rate = (n) => `${short(n)}/s`;
export const byteRate = (n) => `${bytes(n)}/s`;
export const perMinute = (n) => `${short(n)}/min`;

// A number of seconds.
export function seconds(n) {
  if (n === null || n === undefined) return '–';
  const parts = [[86_400, 'd'], [3_600, 'h'], [60, 'min'], [1, 's']];
  const from = parts.findIndex(([size]) => n >= size);
  if (from < 0) return '0 s';
  let left = Math.floor(n);
  return parts.slice(from, from + 2).map(([size, unit]) => {
    const value = Math.floor(left / size);
    left -= value * size;
    return value > 0 ? `${value} ${unit}` : '';
  }).filter(Boolean).join(' ');
}

const two = (n) => String(n).padStart(2, '0');

// The time of day of a moment in unix seconds.
export function clock(unix, exact = false) {
  const at = new Date(unix * 1000);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return exact ? `${text}:${two(at.getSeconds())}` : text;
}

// Date and time.
export function moment(unix) {
  const at = new Date(unix * 1000);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(unix)}`;
}
