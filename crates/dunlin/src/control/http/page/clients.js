// Clients: found, sorted, looked at, disconnected. What is shown of one is used by
// other views.

import { ask, list, part } from './api.js';
import { ask as confirm, attempt, button, dialog, facts, form, h, head, input, load, note, own, plain, put, select, submit } from './dom.js';
import { bytes, count, many, micros, seconds } from './format.js';
import { number, table, text } from './table.js';

// Clients that are fetched to be sorted.
export const CLIENTS_MAX = 20_000;

// Clients up to which the list is fetched by itself again and again.
const FRESH_MAX = 1_000;

const FRESH_MS = 5_000;

// Subscriptions shown of one client.
const SUBSCRIPTIONS_MAX = 1_000;

export const title = 'Clients';

const version = (it) => (it.protocol === 'amqp' ? 'AMQP 1.0' : `MQTT ${it.mqtt_version ?? ''}`.trim());

const TRANSPORTS = { quic: 'QUIC', tcp: 'TCP', tls: 'TLS', ws: 'WebSocket', wss: 'WebSocket over TLS', unix: 'Unix socket' };

// Columns that several views have.
export const columns = {
  client: (changed) => ({ label: 'Client', value: (it) => it.client_id, cell: (it) => name(it, changed), kind: 'main' }),
  user: text('User', (it) => it.user),
  address: { label: 'Address', value: (it) => it.address },
  transport: { label: 'Transport', value: (it) => it.transport?.toUpperCase() },
  queued: number('Queued', (it) => it.queued_messages),
  memory: number('In memory', (it) => it.queued_bytes, bytes),
  flight: number('In flight', (it) => it.inflight_messages),
  backlog: number('To be sent', (it) => it.backlog_bytes, bytes),
};

// A client's name, which opens what is known of it.
const name = ({ client_id: id }, changed) => h('button', {
  type: 'button', class: 'link', title: plain(id, 1_000), on: { click: () => show(id, changed) },
}, id === '' ? '(empty)' : own(id));

const HINTS = { prefix: 'Begins with …', user: 'User', address: '192.0.2.7 or 192.0.2.0/24' };

export function open(root, { every, signal, params }) {
  const search = input({ type: 'search', placeholder: HINTS.prefix, 'aria-label': 'Search', value: params.get('search') ?? '' });
  const kind = select([['prefix', 'Client'], ['user', 'User'], ['address', 'Address']], 'prefix', (value) => {
    search.placeholder = HINTS[value];
    if (search.value !== '') fetch();
  });
  const protocol = select([['', 'All protocols'], ['mqtt', 'MQTT'], ['amqp', 'AMQP']], '', () => fetch());
  kind.setAttribute('aria-label', 'Search in');
  protocol.setAttribute('aria-label', 'Protocol');
  const found = note();
  let running = null;
  let loaded = { rows: [], more: false };
  const fetch = async (quiet = false) => {
    running?.abort();
    const mine = new AbortController();
    running = mine;
    const both = AbortSignal.any([signal, mine.signal]);
    const query = { [kind.value]: search.value.trim(), protocol: protocol.value };
    const seen = (rows) => { if (!quiet) put(found, `${count(rows)} …`); };
    await load(found, async () => {
      loaded = await list('clients', { query, max: CLIENTS_MAX, signal: both, seen });
      shown.show(loaded.rows);
      const n = loaded.rows.length;
      return loaded.more ? `The first ${count(n)} that were found; there are more. Search for fewer.` : many(n, 'client');
    }, both);
    if (running === mine) running = null;
  };
  const shown = table([
    columns.client(() => fetch(true)), columns.user, columns.address, columns.transport,
    { label: 'Version', value: version }, number('Subscribed', (it) => it.subscriptions),
    columns.queued, columns.flight, columns.backlog,
  ], { sort: ['Client', false], empty: 'No such client is connected.', caption: 'Clients' });
  put(root, head('Clients'),
    form('bar', fetch, kind, search, submit('Search'), protocol, button('Refresh', () => fetch())),
    found, shown.element);
  fetch();
  every(FRESH_MS, async () => {
    // A long list is fetched again on request only: it would keep the broker busy. So is
    // one in which text is selected, or that is being used.
    const few = loaded.rows.length <= FRESH_MAX && !loaded.more;
    const used = shown.element.contains(document.activeElement) || document.getSelection()?.isCollapsed === false;
    if (running === null && few && !used) await fetch(true);
  }, false);
}

const quicText = (key, value) => {
  if (key.endsWith('_us')) return micros(value);
  return key.includes('bytes') ? bytes(value) : count(value);
};

function lifetime(client) {
  const left = client.session_expiry_seconds;
  if (client.protocol !== 'mqtt') return null;
  if (left === null) return 'is kept for ever';
  return left === 0 ? 'ends with its connection' : `is kept for ${seconds(left)}`;
}

function details(it) {
  const tls = [it.cipher_suite, it.key_exchange, it.alpn && `ALPN ${plain(it.alpn)}`, it.resumed && 'resumed'];
  return [
    facts([
      ['User', it.user && own(it.user)],
      ['State', it.connection === null ? 'not connected; the session waits for its client' : 'connected'],
      ['Address', it.address],
      ['Transport', it.transport && `${TRANSPORTS[it.transport] ?? it.transport}, listener ${it.listener}`],
      ['Version', version(it)],
      ['Certificate', it.certificate && own(it.certificate)],
      ['Session', lifetime(it)],
      ['Links', it.links],
      ['Queued', `${count(it.queued_messages)} messages, ${bytes(it.queued_bytes)} in memory`],
      ['In flight', `${count(it.inflight_messages)} to it, ${count(it.receiving_messages)} from it`],
      ['To be sent', bytes(it.backlog_bytes)],
      ['TLS', tls.filter(Boolean).join(', ')],
      ['Connection', it.connection],
    ]),
    it.quic && h('details', {}, h('summary', {}, 'QUIC'),
      facts(Object.entries(it.quic).map(([key, value]) => [key.replace(/_us$/, '').replaceAll('_', ' '), quicText(key, value)]))),
  ];
}

function subscriptions({ client_id: id, subscriptions: all }) {
  const box = h('div', {}, '…');
  const rows = table([
    text('Filter', (it) => it.filter, { kind: 'main' }),
    { label: 'QoS', value: (it) => it.qos, number: true },
    { label: 'Options', cell: (it) => [it.no_local && 'No Local', it.retain_as_published && 'Retain As Published',
      it.identifier !== null && `identifier ${it.identifier}`].filter(Boolean).join(', ') },
  ], { sort: ['Filter', false], empty: 'None.', caption: 'Subscriptions' });
  load(box, async () => {
    const found = await list(`sessions/${part(id)}/subscriptions`, { max: SUBSCRIPTIONS_MAX });
    rows.show(found.rows);
    return [rows.element, found.more && `The first ${count(SUBSCRIPTIONS_MAX)}.`];
  });
  return h('details', { open: all > 0 }, h('summary', {}, many(all, 'subscription')), box);
}

// Gives an order about a client if it is meant; whether it was carried out.
async function order(id, path, [question, act, hint], changed) {
  const why = input({ maxlength: 200, placeholder: 'The client gets to see it' });
  const meant = await confirm(question, own(id), act, { danger: true, fields: [['why', 'Reason', why, hint]] });
  if (meant === null) return false;
  const done = await attempt(async () => {
    const { count: n } = await ask('DELETE', `${path}/${part(id)}`, { query: meant });
    return n === 1 ? `${act}: done.` : `${act}: ${many(n, 'connection')}.`;
  });
  changed?.();
  return done;
}

const disconnect = (id, changed) => order(id, 'clients',
  ['Disconnect?', 'Disconnect', 'Its session stays, and it may come back.'], changed);

export const remove = (id, changed) => order(id, 'sessions',
  ['Delete the session?', 'Delete session', 'Its connection ends; its subscriptions and the messages that wait for it are lost.'], changed);

// What is known of one client.
function show(id, changed) {
  return dialog(plain(id), (close) => {
    const body = h('div', { class: 'stack' }, '…');
    const act = (label, run) => button(label, async () => { if (await run(id, changed)) close(true); },
      { role: 'operate', kind: 'danger' });
    const ban = () => {
      close(true);
      location.hash = `#/bans?client_id=${encodeURIComponent(id)}`;
    };
    load(body, async () => {
      const client = await ask('GET', `clients/${part(id)}`);
      const mqtt = client.protocol === 'mqtt';
      return [details(client), mqtt && subscriptions(client), h('div', { class: 'actions' },
        client.connection !== null && act('Disconnect', disconnect),
        mqtt && act('Delete session', remove),
        button('Ban', ban, { role: 'operate' }))];
    });
    return body;
  }, 'wide');
}
