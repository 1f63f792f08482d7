// Bans: who is kept out, until when, why.

import { ask, list } from './api.js';
import { ask as confirm, attempt, button, field, form, head, input, note, own, put, select, submit } from './dom.js';
import { many, moment } from './format.js';
import { act, table, text } from './table.js';

// As many as the broker keeps.
const BANS_MAX = 10_000;

const FRESH_MS = 10_000;

const KINDS = [['client_id', 'Client'], ['user', 'User'], ['address', 'Address or network']];
const TIMES = [['3600', '1 hour'], ['86400', '1 day'], ['604800', '1 week'], ['', 'For good']];

export const title = 'Bans';

const whom = (ban) => Object.entries(ban.whom)[0];

async function end(ban, changed) {
  const [key, value] = whom(ban);
  if (await confirm('End the ban?', own(value), 'End it') === null) return;
  await attempt(async () => {
    await ask('DELETE', 'bans', { query: { [key]: value } });
    return 'The ban is over.';
  });
  changed();
}

function newBan(params, changed) {
  const asked = KINDS.find(([key]) => params.has(key))?.[0] ?? 'client_id';
  const value = input({ required: true, value: params.get(asked) ?? '' });
  const kind = select(KINDS, asked);
  const time = select(TIMES, '86400');
  const why = input({ maxlength: 200 });
  const go = async () => {
    const text_ = [own(value.value), ' is kept out, and loses its connections.'];
    if (await confirm('Ban?', text_, 'Ban', { danger: true }) === null) return;
    await attempt(async () => {
      const seconds = time.value === '' ? null : Number(time.value);
      // Spaces are part of a client identifier.
      const name = kind.value === 'address' ? value.value.trim() : value.value;
      const done = await ask('POST', 'bans', { body: { whom: { [kind.value]: name }, seconds, why: why.value } });
      value.value = '';
      return `Banned; ${many(done.count, 'connection')} ended.`;
    });
    changed();
  };
  return form('bar card', go,
    field('Whom', kind), field('Name', value), field('For how long', time), field('Why', why),
    submit('Ban', { kind: 'danger', role: 'operate' }));
}

export function open(root, { every, signal, params }) {
  const found = note();
  const fetch = async () => {
    const { rows } = await list('bans', { max: BANS_MAX, signal });
    put(found, many(rows.length, 'ban'));
    shown.show(rows);
  };
  const shown = table([
    text('Whom', (it) => whom(it)[1], { kind: 'main' }),
    { label: 'Kind', value: (it) => KINDS.find(([key]) => key === whom(it)[0])?.[1] },
    { label: 'Until', value: (it) => it.until ?? Infinity, cell: (it) => (it.until === null ? 'for good' : moment(it.until)) },
    text('Why', (it) => it.why),
    act((it) => button('End', () => end(it, fetch), { role: 'operate', kind: 'small' })),
  ], { sort: ['Whom', false], empty: 'There are no bans.', caption: 'Bans' });
  put(root, head('Bans'), newBan(params, fetch), found, shown.element);
  every(FRESH_MS, fetch);
}
