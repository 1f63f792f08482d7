// Queues of AMQP: how much waits and who takes it, the messages that leave first, and
// orders.

import { ask, list, part } from './api.js';
import { ask as confirm, attempt, button, dialog, facts, h, input, load, own, plain, put } from './dom.js';
import { bytes, count, many, seconds } from './format.js';
import { payloadOf, payloadView } from './payload.js';
import { number, table, text } from './table.js';

// Queues that are listed at most.
const QUEUES_MAX = 5_000;

// Messages of a queue that are shown.
const PEEKED = 20;

// Gives an order step by step, until nothing is left to do.
async function inSteps(said, what, step) {
  let done = 0;
  let left = null;
  do {
    const answer = await step(left);
    done += answer.count;
    left = answer.next ?? null;
    put(said, `${count(done)} ${what}${left === null ? '' : `, ${count(Number(left))} left`}`);
  } while (left !== null);
  return `${many(done, 'message')} ${what}.`;
}

async function purge(name, said, changed) {
  if (await confirm('Remove all messages that wait?', own(name), 'Purge', { danger: true }) === null) return;
  await attempt(() => inSteps(said, 'removed', (left) => ask('DELETE', `queues/${part(name)}/messages`, { query: { left } })));
  changed();
}

async function move(name, said, changed) {
  const to = input({ required: true });
  const fields = [['to', 'To the queue', to, 'Each message is moved once; their order stays.']];
  const meant = await confirm('Move all messages that wait?', own(name), 'Move', { fields });
  if (meant === null) return;
  await attempt(() => inSteps(said, 'moved', (left) => ask('POST', `queues/${part(name)}/move`,
    { body: { to: meant.to, left: left === null ? null : Number(left) } })));
  changed();
}

async function remove(name) {
  if (await confirm('Delete the queue with its messages?', own(name), 'Delete queue', { danger: true }) === null) return false;
  return attempt(async () => {
    await ask('DELETE', `queues/${part(name)}`);
    return 'Deleted.';
  });
}

const limits = (it) => facts([
  ['Messages', `${count(it.messages)} of ${count(it.max_messages)}; ${count(it.unsettled)} with consumers`],
  ['In memory', `${bytes(it.bytes)} of ${bytes(it.max_bytes)}`],
  ['Oldest', it.oldest_seconds !== null && seconds(it.oldest_seconds)],
  ['Consumers', count(it.consumers)],
  ['When full', it.full],
  ['Stay', it.ttl_seconds !== null && seconds(it.ttl_seconds)],
  ['Attempts', it.max_deliveries > 0 && count(it.max_deliveries)],
  ['Dead letters to', it.dead_letter && own(it.dead_letter)],
  ['Topics', it.topics.length > 0 && plain(it.topics.join(', '), 1_000)],
  ['Kept', `${it.durable ? 'over a restart' : 'in memory only'}${it.configured ? ', by the configuration' : ''}`],
]);

function message(it) {
  const shown = it.payload !== undefined || it.payload_base64 !== undefined || it.bytes === 0;
  const more = [bytes(it.bytes), it.failed_deliveries > 0 && `${many(it.failed_deliveries, 'attempt')} failed`,
    it.expiry_seconds !== null && `expires in ${seconds(it.expiry_seconds)}`];
  return h('details', {}, h('summary', {}, own(it.topic, 'mono'), ` – ${more.filter(Boolean).join(', ')}`),
    shown ? payloadView(payloadOf(it)) : h('p', { class: 'dim' }, 'Too large to be shown here.'));
}

// What is known of one queue, and orders about it.
function show(name, changed) {
  return dialog(plain(name), (close) => {
    const body = h('div', { class: 'stack' }, '…');
    const said = h('p', { class: 'dim', 'aria-live': 'polite' });
    const draw = () => load(body, async () => {
      const it = await ask('GET', `queues/${part(name)}`);
      const { rows } = await ask('GET', `queues/${part(name)}/messages`, { query: { limit: PEEKED } });
      const again = () => { draw(); changed(); };
      const orders = { role: 'operate', off: it.messages === 0 };
      return [limits(it),
        h('h3', {}, rows.length < it.messages ? `The first ${count(rows.length)} messages` : many(rows.length, 'message')),
        rows.map(message), said,
        h('div', { class: 'actions' },
          button('Move …', () => move(name, said, again), orders),
          button('Purge', () => purge(name, said, again), { ...orders, kind: 'danger' }),
          !it.configured && button('Delete queue', async () => {
            if (await remove(name)) { close(true); changed(); }
          }, { role: 'operate', kind: 'danger' }))];
    });
    draw();
    return body;
  }, 'wide');
}

// The table of queues; `fetch` fills it.
export function queues(signal) {
  const name = (it) => h('button', { type: 'button', class: 'link', on: { click: () => show(it.name, fetch) } }, own(it.name));
  const shown = table([
    { label: 'Queue', value: (it) => it.name, cell: name, kind: 'main' },
    number('Messages', (it) => it.messages),
    number('Unsettled', (it) => it.unsettled),
    { label: 'Oldest', value: (it) => it.oldest_seconds, number: true,
      cell: (it) => (it.oldest_seconds === null ? '–' : seconds(it.oldest_seconds)) },
    number('Consumers', (it) => it.consumers),
    number('In memory', (it) => it.bytes, bytes),
    text('Dead letters to', (it) => it.dead_letter),
  ], { sort: ['Messages', true], empty: 'There are no queues.', caption: 'Queues of AMQP' });
  const said = h('p', { class: 'dim' });
  const fetch = () => load(said, async () => {
    const { rows, more } = await list('queues', { max: QUEUES_MAX, signal });
    shown.show(rows);
    return more ? `The first ${count(rows.length)}; there are more.` : many(rows.length, 'queue');
  }, signal);
  return { fetch, element: h('div', { class: 'amqp' }, said, shown.element) };
}
