// Bridges to other brokers: how they are, what waits, and orders.

import { ask, part } from './api.js';
import { ask as confirm, attempt, button, h, own, plain } from './dom.js';
import { count, micros, moment } from './format.js';
import { act, number, table, text } from './table.js';

const STATES = { connected: 'connected', connecting: 'not connected; it tries', paused: 'paused' };

const kinds = { connected: 'good', connecting: 'wrong', paused: 'warn' };

const order = async (it, what, said, changed) => {
  await attempt(async () => {
    await ask('POST', `bridges/${part(it.name)}/${what}`);
    return `${said}: ${plain(it.name)}.`;
  });
  changed();
};

const remove = async (it, changed) => {
  const lost = it.waiting_messages && ` – ${count(it.waiting_messages)} messages that wait for it are dropped.`;
  if (await confirm('Remove the bridge?', [own(it.name), lost], 'Remove', { danger: true }) === null) return;
  await attempt(async () => {
    const waiting = it.waiting_messages ? 'discard' : 'refuse';
    await ask('DELETE', `bridges/${part(it.name)}`, { query: { waiting } });
    return `Removed: ${plain(it.name)}.`;
  });
  changed();
};

// The table of bridges; `fetch` fills it.
export function bridges(signal) {
  const small = { role: 'operate', kind: 'small' };
  const orders = (it) => (it.state === 'paused'
    ? button('Resume', () => order(it, 'resume', 'Resumed', fetch), small)
    : h('div', { class: 'actions' }, button('Reconnect', () => order(it, 'reconnect', 'It connects again', fetch), small),
      button('Pause', () => order(it, 'pause', 'Paused', fetch), small)));
  const added = (it) => h('div', { class: 'actions' }, orders(it),
    !it.configured && button('Remove', () => remove(it, fetch), { role: 'admin', kind: 'small danger' }));
  const error = (it) => it.last_error && [own(it.last_error), ` (${moment(it.last_error_at)})`];
  const shown = table([
    text('Bridge', (it) => it.name, { kind: 'main' }),
    { label: 'State', value: (it) => it.state, cell: (it) => h('b', { class: kinds[it.state] }, STATES[it.state]) },
    text('Other broker', (it) => it.url),
    text('Topics', (it) => it.topics.join(', ')),
    { label: 'Waiting', value: (it) => it.waiting_messages, number: true,
      cell: (it) => (it.waiting_messages === null ? '–' : count(it.waiting_messages)) },
    number('Out', (it) => it.messages_out),
    number('In', (it) => it.messages_in),
    number('Dropped', (it) => it.messages_dropped),
    number('Round trip', (it) => it.round_trip_us, micros),
    { label: 'Last error', value: (it) => it.last_error_at, cell: error },
    act(added),
  ], { sort: ['Bridge', false], empty: 'There are none.', caption: 'Bridges' });
  const fetch = async () => { shown.show((await ask('GET', 'bridges', { signal })).rows); };
  return { fetch, element: shown.element };
}
