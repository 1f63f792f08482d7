// Queues of AMQP, sessions with the longest queues, and clients that do not keep up.

import { queues as ofAmqp } from './amqp.js';
import { list } from './api.js';
import { button, h, head, load, note, put } from './dom.js';
import { count, seconds } from './format.js';
import { act, table } from './table.js';
import { CLIENTS_MAX, columns, remove } from './clients.js';

// Rows of each list.
const SHOWN_MAX = 100;

export const title = 'Queues';

const longest = (rows, of) => rows.filter((row) => of(row) > 0).sort((a, b) => of(b) - of(a)).slice(0, SHOWN_MAX);

// How far a connected client is behind: what is sent to it, and what waits for that.
const behind = (it) => (it.connection === null ? 0 : it.backlog_bytes + it.queued_bytes + it.queued_messages);

const kept = ({ session_expiry_seconds: left }) => {
  if (left === null) return 'for ever';
  return left === 0 ? 'until it disconnects' : seconds(left);
};

export function open(root, { signal }) {
  const found = note();
  const fetch = () => load(found, async () => {
    const seen = (rows) => put(found, `${count(rows)} …`);
    const { rows, more } = await list('sessions', { max: CLIENTS_MAX, signal, seen });
    queues.show(longest(rows, (it) => it.queued_messages));
    slow.show(longest(rows, behind));
    return more
      ? `The first ${count(rows.length)} sessions were looked at; there are more.`
      : `${count(rows.length)} sessions were looked at.`;
  }, signal);
  const { client, user, address, transport, queued, memory, flight, backlog } = columns;
  const queues = table([
    client(fetch), user,
    { label: 'Client is', value: (it) => (it.connection === null ? 'away' : 'connected') },
    { label: 'Is kept', value: (it) => it.session_expiry_seconds ?? Infinity, cell: kept },
    queued, memory, flight,
    act((it) => button('Delete', () => remove(it.client_id, fetch), { role: 'operate', kind: 'small danger' })),
  ], { sort: ['Queued', true], empty: 'No messages wait for any session.', caption: 'Sessions with the longest queues' });
  const slow = table([client(fetch), user, address, transport, backlog, flight, queued, memory],
    { sort: ['To be sent', true], empty: 'All connected clients keep up.', caption: 'Slow consumers' });
  const named = ofAmqp(signal);
  const all = () => { named.fetch(); fetch(); };
  put(root, head('Queues', button('Refresh', all)),
    h('h2', {}, 'Queues of AMQP'), named.element,
    h('h2', {}, 'Sessions with the longest queues'), found, queues.element,
    h('h2', {}, 'Slow consumers'), h('p', { class: 'dim' }, 'Connected clients to which messages wait to be sent.'), slow.element);
  all();
}
