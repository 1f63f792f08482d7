// Retained messages: listed, shown, cleared.

import { ask, list, part } from './api.js';
import { ask as confirm, attempt, button, dialog, facts, form, h, head, input, load, note, own, plain, put, submit } from './dom.js';
import { bytes, count, many, seconds } from './format.js';
import { payloadOf, payloadView } from './payload.js';
import { act, number, table } from './table.js';

// Messages that are listed at most.
const MESSAGES_MAX = 5_000;

export const title = 'Retained';

function view(topic, changed) {
  return dialog(plain(topic), (close) => {
    const body = h('div', { class: 'stack' }, '…');
    load(body, async () => {
      const it = await ask('GET', `retained/${part(topic)}`);
      const data = payloadOf(it);
      return [facts([
        ['QoS', String(it.qos)],
        ['Content type', it.content_type && plain(it.content_type)],
        ['Expires', it.expiry_seconds && `in ${seconds(it.expiry_seconds)}`],
        ['Payload', bytes(data.length)],
      ]), payloadView(data), h('div', { class: 'actions' },
        button('Clear', async () => { if (await clear(topic, changed)) close(true); }, { role: 'operate', kind: 'danger' }))];
    });
    return body;
  }, 'wide');
}

async function clear(filter, changed) {
  const text = [own(filter, 'mono'), ' – subscribers hear nothing of it.'];
  if (await confirm('Clear retained messages?', text, 'Clear', { danger: true }) === null) return false;
  const done = await attempt(async () => {
    let cleared = 0;
    let after = null;
    do {
      const part_ = await ask('DELETE', 'retained', { query: { filter, after, limit: 1_000 } });
      cleared += part_.count;
      after = part_.next ?? null;
    } while (after !== null);
    return `${many(cleared, 'retained message')} cleared.`;
  });
  changed();
  return done;
}

export function open(root, { signal }) {
  const filter = input({ class: 'mono', value: '#', 'aria-label': 'Topic filter' });
  const found = note();
  const fetch = () => load(found, async () => {
    const { rows, more } = await list('retained', { query: { filter: filter.value }, max: MESSAGES_MAX, signal });
    shown.show(rows);
    return more
      ? `The first ${count(rows.length)}; there are more. Narrow the filter.`
      : many(rows.length, 'message');
  }, signal);
  const shown = table([
    { label: 'Topic', value: (it) => it.topic, kind: 'main', cell: (it) => h('button', {
      type: 'button', class: 'link mono', title: plain(it.topic, 1_000), on: { click: () => view(it.topic, fetch) },
    }, own(it.topic)) },
    number('QoS', (it) => it.qos),
    number('Payload', (it) => it.bytes, bytes),
    act((it) => button('Clear', () => clear(it.topic, fetch), { role: 'operate', kind: 'small danger' })),
  ], { sort: ['Topic', false], empty: 'No retained message matches.', caption: 'Retained messages' });
  put(root, head('Retained messages'),
    form('bar', fetch, filter, submit('List'),
      button('Clear all of these', () => clear(filter.value, fetch), { role: 'operate', kind: 'danger' })),
    found, shown.element);
  fetch();
}
