// The broker's HTTP interface: requests with the token, what is wrong with them, and
// whether the broker is there at all.

const BASE = new URL('api/v1/', document.baseURI);
const KEY = 'dunlin-token';

// Time for an answer.
const ANSWER_MS_MAX = 15_000;

// While the page is seen, the broker is asked whether it is there when it has not answered
// anything for so long; and the time for that answer.
const SILENCE_MS_MAX = 1_000;
const BEAT_MS_MAX = 5_000;

// Pauses between attempts to reach a broker that does not answer.
const RETRY_MS = [500, 1_000, 2_000, 3_000, 5_000];

// Rows of one request.
const PAGE_ROWS = 1_000;

const ROLES = ['read', 'operate', 'admin'];

// Why something is not done. `status` is 0 when there was no answer.
export class Failure extends Error {
  constructor(status, text, wait = null) {
    super(text);
    this.status = status;
    this.wait = wait;
  }
}

// What others listen to: `offline`, `online`, `refused`.
export const events = new EventTarget();

let token = sessionStorage.getItem(KEY);
let me = { name: '', role: 'read' };
let lost = false;
let beating = false;
let answered = 0;
let again = null;

// Whether there is a token at all.
export const hasToken = () => token !== null;

// Who the token is of.
export const who = () => me;

// Whether the token's role is at least this one.
export const may = (role) => ROLES.indexOf(me.role) >= ROLES.indexOf(role);

// Tries a token, and keeps it for this tab if it is good.
export async function enter(text) {
  token = text;
  me = await ask('GET', 'whoami');
  sessionStorage.setItem(KEY, text);
}

// Asks again who the token is of.
export async function resume() {
  me = await ask('GET', 'whoami');
}

// Forgets the token.
export function leave() {
  token = null;
  me = { name: '', role: 'read' };
  sessionStorage.removeItem(KEY);
}

function target(path, query) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== '') url.searchParams.set(name, value);
  }
  return url;
}

// One request. `path` is below /api/v1/, with percent-encoded parts.
export async function ask(method, path, { query, body, signal, time = ANSWER_MS_MAX } = {}) {
  const limit = AbortSignal.timeout(time);
  const headers = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let response;
  let text;
  try {
    response = await fetch(target(path, query), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    lose();
    throw new Failure(0, 'The broker does not answer.');
  }
  answered = performance.now();
  const value = read(text);
  if (response.ok && value !== null) return value;
  const wait = Number(response.headers.get('Retry-After')) || null;
  const failure = new Failure(response.status, value?.detail ?? `The broker answers ${response.status}.`, wait);
  if (response.status === 401) events.dispatchEvent(new Event('refused'));
  throw failure;
}

function read(text) {
  try {
    return text === '' ? {} : JSON.parse(text);
  } catch {
    return null;
  }
}

function lose() {
  if (lost) return;
  lost = true;
  events.dispatchEvent(new Event('offline'));
  seek(0);
}

// Asks again until there is an answer.
function seek(attempt) {
  const attend = async () => {
    clearTimeout(timer);
    again = null;
    try {
      if (token !== null) await resume();
    } catch (failure) {
      const gone = failure.status === 0 || failure.status >= 500;
      if (gone) {
        seek(attempt + 1);
        return;
      }
    }
    lost = false;
    events.dispatchEvent(new Event('online'));
  };
  const timer = setTimeout(attend, RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)]);
  again = attend;
}

// Asks at once whether a broker is there that did not answer.
export const retry = () => again?.();

// Asks whether the broker is there: one that is not is shown before something is asked of it.
export async function check() {
  if (beating || lost || token === null) return;
  beating = true;
  try {
    await ask('GET', 'whoami', { time: BEAT_MS_MAX });
  } catch (failure) {
    // What is wrong is an event already; that there is an answer is all that counts.
    if (!(failure instanceof Failure)) throw failure;
  } finally {
    beating = false;
  }
}

function beat() {
  if (!document.hidden && performance.now() - answered >= SILENCE_MS_MAX) check();
}

setInterval(beat, SILENCE_MS_MAX / 2);
document.addEventListener('visibilitychange', beat);

// All rows of a list, up to `max`; `more` says whether there are others. `seen` is called
// after each page.
export async function list(path, { query, max, signal, seen } = {}) {
  const rows = [];
  let after = null;
  do {
    const limit = Math.min(PAGE_ROWS, max - rows.length);
    const page = await ask('GET', path, { query: { ...query, limit, after }, signal });
    rows.push(...page.rows);
    after = page.next;
    seen?.(rows.length);
  } while (after !== null && rows.length < max);
  return { rows, more: after !== null };
}

// A part of a path. Browsers resolve `.` and `..`, however they are written.
export function part(text) {
  if (text === '.' || text === '..') {
    throw new Failure(400, `A browser cannot ask for ${JSON.stringify(text)}: use dunlin ctl, or ban it.`);
  }
  return encodeURIComponent(text);
}
