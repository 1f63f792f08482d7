// The broker itself: what runs, certificates, the configuration, the log, rules, the
// order to stop.

import { ask, who } from './api.js';
import { bridges } from './bridges.js';
import { ask as confirm, attempt, button, facts, field, form, h, head, input, load, note, own, plain, put, select, submit } from './dom.js';
import { count, many, moment, seconds } from './format.js';
import { table, text } from './table.js';

// Days before its end from which on a certificate is pointed out.
const DAYS_LEFT_WARN = 14;

const DAY = 86_400;

const FRESH_MS = 10_000;

const LEVELS = ['error', 'warn', 'info', 'debug', 'trace'];

export const title = 'Broker';

function status(it) {
  return facts([
    ['Version', it.version],
    ['Process', String(it.pid)],
    ['Runs since', `${moment(Date.now() / 1000 - it.uptime_seconds)} (${seconds(it.uptime_seconds)})`],
    ['Shards', it.shards === it.shards_answering ? count(it.shards) : `${it.shards_answering} of ${it.shards} answer`],
    ['Data', it.data_dir],
    ['Store', it.store ?? 'nothing is kept on disk'],
    ['Your token', `${who().name}, ${who().role}`],
  ]);
}

const listeners = () => table([
  { label: 'Listener', value: (it) => it.listener },
  { label: 'Transport', value: (it) => it.transport.toUpperCase(), kind: 'main' },
  text('Address', (it) => `${it.address}${it.path ?? ''}`),
  { label: 'Protocols', value: (it) => it.protocols.join(', ').toUpperCase() },
], { sort: ['Listener', false], empty: 'There are none.', caption: 'Listeners' });

function left(it) {
  const days = (it.not_after - Date.now() / 1000) / DAY;
  if (days < 0) return h('b', { class: 'wrong' }, 'over');
  const time = days < 2 ? seconds(days * DAY) : `${count(Math.floor(days))} days`;
  return days < DAYS_LEFT_WARN ? h('b', { class: 'warn' }, time) : time;
}

const certificates = () => table([
  text('Certificate', (it) => it.subject, { kind: 'main' }),
  text('Names', (it) => it.names.join(', ')),
  { label: 'Used by', value: (it) => (it.listener === null ? 'this page' : `listener ${it.listener}`) },
  text('File', (it) => (it.development ? 'made for development' : it.file)),
  { label: 'Ends', value: (it) => it.not_after, cell: (it) => moment(it.not_after) },
  { label: 'Left', value: (it) => it.not_after, cell: left, number: true },
], { sort: ['Ends', false], empty: 'No listener has one.', caption: 'Certificates' });

const differs = (row) => row.file !== undefined && row.file !== null;

function configuration(signal) {
  const only = h('input', { type: 'checkbox', checked: true, on: { change: () => draw() } });
  const search = input({ type: 'search', placeholder: 'Key', 'aria-label': 'Key', on: { input: () => draw() } });
  const said = note();
  let rows = [];
  const mono = (value, kind = '') => h('span', { class: `mono ${kind}` }, plain(value, 1_000));
  const shown = table([
    { label: 'Key', value: (it) => it.key, cell: (it) => mono(it.key), kind: 'main' },
    { label: 'Runs with', value: (it) => it.value, cell: (it) => mono(it.value) },
    { label: 'File says', value: (it) => it.file, cell: (it) => (differs(it) ? mono(it.file, 'warn') : h('span', { class: 'dim' }, 'the same')) },
    { label: 'Default', value: (it) => (it.default ? 'yes' : 'no') },
  ], { sort: ['Key', false], empty: 'Every key has its default.', caption: 'Configuration' });
  const draw = () => {
    const n = rows.filter(differs).length;
    put(said, n > 0
      ? h('span', { class: 'warn' }, `${many(n, 'key differs', 'keys differ')} from the file: reload, or restart the broker.`)
      : 'The broker runs with what the file says.');
    shown.show(rows.filter((row) => row.key.includes(search.value.trim()) && !(only.checked && row.default && !differs(row))));
  };
  const fetch = () => load(said, async () => {
    rows = (await ask('GET', 'configuration', { signal })).rows;
    draw();
  }, signal);
  const reload = async () => {
    const text_ = 'Users, rules, certificates and the configuration. A mistake in any of them leaves all as it is.';
    if (await confirm('Read the files again?', text_, 'Reload') === null) return;
    await attempt(async () => {
      const done = await ask('POST', 'reload');
      const restart = done.restart.length > 0 ? ` A restart is needed for: ${done.restart.join(', ')}.` : '';
      return `In force: ${done.changed.join(', ')}.${restart}`;
    });
    fetch();
  };
  fetch();
  return [
    h('div', { class: 'bar' }, search, h('label', { class: 'check' }, only, 'Only what is not the default, or differs from the file'),
      button('Reload', reload, { role: 'admin' })),
    said, shown.element,
  ];
}

function logLevel(signal) {
  const now = h('b', { class: 'mono' }, '…');
  const box = select(LEVELS.map((level) => [level, level]), 'info');
  box.setAttribute('aria-label', 'Level');
  const set = () => attempt(async () => {
    const { filter } = await ask('PUT', 'log-level', { body: { filter: box.value } });
    put(now, plain(filter));
    return `The log writes ${filter}, until the next start or reload.`;
  });
  load(now, async () => {
    const { filter } = await ask('GET', 'log-level', { signal });
    if (LEVELS.includes(filter)) box.value = filter;
    return plain(filter);
  }, signal);
  return h('div', { class: 'bar' }, h('span', {}, 'The log writes ', now), box, button('Change', set, { role: 'admin' }));
}

function rights(signal) {
  const user = input({ placeholder: 'none' });
  const client = input();
  const topic = input({ class: 'mono', required: true });
  const out = h('div', { class: 'rights', 'aria-live': 'polite' });
  const go = () => load(out, async () => {
    const query = { user: user.value, client_id: client.value, topic: topic.value };
    const { rows } = await ask('GET', 'rights', { query, signal });
    return rows.map((row) => h('p', {}, h('b', { class: row.allowed ? 'good' : 'wrong' },
      `${row.action}: ${row.allowed ? 'yes' : 'no'}`), ` – ${row.why}`));
  }, signal);
  return form(null, go, h('div', { class: 'bar' },
    field('User', user), field('Client', client), field('Topic or filter', topic), submit('Ask')), out);
}

async function drain() {
  const rate = h('input', { type: 'number', min: 1, max: 100_000, value: 100, required: true });
  const server = input({ placeholder: 'other.example:8883' });
  const text_ = 'The listeners are closed, the connections end one after the other, and the broker stops when none is left. This cannot be taken back.';
  const meant = await confirm('Drain, then stop?', text_, 'Drain and stop', {
    danger: true,
    fields: [['rate', 'Connections ended in a second', rate],
      ['server', 'The server to which clients are to go', server, 'Empty: they are not sent to any.']],
  });
  if (meant === null) return;
  await attempt(async () => {
    const body = { rate: Number(meant.rate), server: meant.server.trim() || null, moved: false };
    return `Draining: ${many((await ask('POST', 'drain', { body })).count, 'connection')}.`;
  });
}

export function open(root, { every, signal }) {
  const known = h('div', { class: 'card spread' });
  const places = listeners();
  const ends = certificates();
  const joined = bridges(signal);
  const section = (name, ...of) => [h('h2', {}, name), of];
  put(root, head('Broker'), known,
    section('Listeners', places.element), section('Certificates', ends.element),
    section('Bridges', joined.element), section('Configuration', configuration(signal)), section('Log', logLevel(signal)),
    section('What may a user do?', rights(signal)),
    section('Stop', button('Drain and stop', drain, { role: 'admin', kind: 'danger' })));
  for (const [path, it] of [['listeners', places], ['certificates', ends]]) {
    load(it.element, async () => { it.show((await ask('GET', path, { signal })).rows); }, signal);
  }
  every(FRESH_MS, joined.fetch);
  every(FRESH_MS, async () => put(known, status(await ask('GET', 'status', { signal }))));
}
