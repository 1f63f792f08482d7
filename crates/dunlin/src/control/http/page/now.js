// The broker now, and in the last hour.

import { ask } from './api.js';
import { Chart } from './chart.js';
import { h, head, put } from './dom.js';
import { byteRate, bytes, count, micros, perMinute, percent, rate, seconds, short } from './format.js';

// Pause between two looks at what is; the broker takes a sample for the charts each 10 s.
const LOOK_MS = 3_000;
const CHARTS_MS = 5_000;

const HOUR = 3_600;
const SPANS = [[600, '10 min'], [1_800, '30 min'], [HOUR, '1 h']];

// Shards with a line of their own.
const SHARDS_SHOWN = 6;

export const title = 'Now';

const sum = (values) => Object.values(values ?? {}).reduce((all, value) => all + value, 0);

// Series: of what is, of what was counted in a sample's period, by second and minute.
const is = (name, of) => ({ name, of });
const each = (name, of) => ({ name, of: (it) => of(it) / it.seconds });
const minute = (name, of) => ({ name, of: (it) => (of(it) / it.seconds) * 60 });

const TRAFFIC = [
  ['Messages', { unit: rate }, [each('in', (it) => sum(it.messages_received)), each('out', (it) => sum(it.messages_sent))]],
  ['Bytes', { unit: byteRate, binary: true }, [each('in', (it) => it.bytes_received), each('out', (it) => it.bytes_sent)]],
  ['Connections by transport', { unit: short, stacked: true },
    ['quic', 'tcp', 'tls', 'ws', 'wss', 'unix'].map((key) => is(key.toUpperCase(), (it) => it.connections[key]))],
  ['Clients by version', { unit: short, stacked: true },
    [['mqtt_5_0', 'MQTT 5.0'], ['mqtt_3_1_1', 'MQTT 3.1.1'], ['amqp_1_0', 'AMQP 1.0']]
      .map(([key, name]) => is(name, (it) => it.clients[key]))],
  ['Dropped messages, by cause', { unit: rate },
    [['slow', 'slow receiver'], ['full', 'queue full'], ['expired', 'expired'], ['dead', 'not deliverable'],
      ['denied', 'not allowed'], ['refused', 'refused']].map(([key, name]) => each(name, (it) => it.dropped[key] ?? 0))],
  ['Waiting messages', { unit: short, hint: 'Queue depth of all sessions' },
    [is('queued', (it) => it.queued_messages), is('in flight', (it) => it.inflight_messages)]],
];

// The busiest shard stands for those that have no line.
const LOADS = [
  ...Array.from({ length: SHARDS_SHOWN - 1 }, (_, shard) => is(`shard ${shard}`, (it) => it.shard_load[shard])),
  is('busiest other', (it) => {
    const others = it.shard_load.slice(SHARDS_SHOWN - 1);
    return others.length > 0 ? Math.max(...others) : null;
  }),
];

const BROKER = [
  ['Commit to disk', { unit: micros, hint: 'Time of a commit with its fsync' },
    [is('median', (it) => it.store?.p50_us), is('99 %', (it) => it.store?.p99_us)]],
  ['Shard load', { unit: percent, least: 0.1, hint: 'Share of the time in which a shard has work' }, LOADS],
  ['Memory', { unit: bytes, binary: true }, [is('of the process', (it) => it.memory_bytes)]],
  ['Held for clients', { unit: bytes, binary: true },
    [is('queued', (it) => it.queued_bytes), is('to be sent', (it) => it.backlog_bytes)]],
  ['Clients that come', { unit: rate }, [each('accepted', (it) => it.clients_accepted), each('refused', (it) => it.clients_refused)]],
  ['Connections that come', { unit: rate },
    [each('opened', (it) => it.connections_opened), each('refused', (it) => it.connections_refused)]],
];

const QUIC = [
  ['Handshakes, by kind', { unit: perMinute }, [
    minute('full', ({ quic }) => quic.handshakes.full), minute('resumed', ({ quic }) => quic.handshakes.resumed),
    minute('early data', ({ quic }) => quic.handshakes.early_data), minute('failed', ({ quic }) => quic.handshakes_failed),
    minute('Retry sent', ({ quic }) => quic.retries)]],
  ['Early data', { unit: perMinute }, [
    minute('taken', ({ quic }) => quic.early_data_accepted), minute('refused', ({ quic }) => sum(quic.early_data_refused))]],
  ['Packets lost', { unit: percent, least: 0.01 }, [
    is('lost', ({ quic }) => (quic.packets_sent > 0 ? quic.packets_lost / quic.packets_sent : null))]],
  ['Round-trip time', { unit: micros }, [is('median', ({ quic }) => quic.rtt_p50_us), is('99 %', ({ quic }) => quic.rtt_p99_us)]],
  ['Address changes', { unit: perMinute }, [minute('changes', ({ quic }) => quic.path_changes)]],
  ['Blocked streams', { unit: perMinute, hint: 'Times that bytes for a stream waited because the client had not read it' },
    [minute('blocked', ({ quic }) => quic.streams_blocked)]],
];

const tile = (label, value, more = null) =>
  h('div', { class: 'tile' }, h('span', {}, label), h('b', {}, value), more && h('small', {}, more));

// What is, and how fast it changes between two looks.
function tiles(status, now, before) {
  const speed = (of) => {
    const time = now.seconds - (before?.seconds ?? now.seconds);
    return time > 0 ? (sum(of(now)) - sum(of(before))) / time : null;
  };
  const [came, left, dropped] = [speed((it) => it.messages_received), speed((it) => it.messages_sent), speed((it) => it.dropped)];
  return [
    tile('Connections', count(sum(now.connections)), `${count(sum(now.clients))} clients`),
    tile('Messages in', came === null ? '…' : rate(came)),
    tile('Messages out', left === null ? '…' : rate(left), dropped > 0 && `${rate(dropped)} dropped`),
    tile('Waiting', short(now.queued_messages), bytes(now.queued_bytes)),
    tile('Sessions', count(now.sessions), `${short(now.subscriptions)} subscriptions`),
    tile('Retained', count(now.retained_messages)),
    tile('Memory', bytes(now.memory_bytes)),
    tile('Up', seconds(status.uptime_seconds), `version ${status.version}`),
  ];
}

// What must be seen at once.
function warnings(status) {
  const silent = status.shards - status.shards_answering;
  return [
    status.draining && h('p', { class: 'warning' }, 'The broker is being drained: it accepts no clients any more.'),
    silent > 0 && h('p', { class: 'warning' }, `${silent} of ${status.shards} shards do not answer in time.`),
  ];
}

// Why early data was refused, in the time that is shown.
function refusals(samples) {
  const causes = {};
  for (const { quic } of samples) {
    for (const [cause, n] of Object.entries(quic.early_data_refused)) causes[cause] = (causes[cause] ?? 0) + n;
  }
  const some = Object.entries(causes).filter(([, n]) => n > 0);
  return some.length > 0 && `Early data was refused: ${some.map(([cause, n]) => `${cause} ${count(n)}`).join(', ')}.`;
}

export function open(root, { every, signal }) {
  let samples = [];
  let span = HOUR;
  let before = null;
  const charts = [];
  const grid = (of) => h('div', { class: 'charts' }, of.map(([name, options, series]) => {
    const chart = new Chart(name, series, options);
    charts.push(chart);
    return chart.element;
  }));
  const top = h('div', { class: 'tiles' });
  const alerts = h('div', {});
  const why = h('p', { class: 'dim' });
  const spans = h('div', { class: 'segments', role: 'group', 'aria-label': 'Time shown' });
  const choose = (to) => {
    span = to;
    put(spans, SPANS.map(([value, label]) => h('button', {
      type: 'button', 'aria-pressed': String(value === span), on: { click: () => { choose(value); draw(); } },
    }, label)));
  };
  const draw = () => {
    const now = samples.at(-1)?.time ?? Date.now() / 1000;
    charts.forEach((chart) => chart.show(samples, now, span));
    put(why, refusals(samples.filter(({ time }) => time >= now - span)));
  };
  choose(HOUR);
  put(root, head('Now', spans), alerts, top, grid(TRAFFIC),
    h('h2', {}, 'Broker'), grid(BROKER), h('h2', {}, 'QUIC'), grid(QUIC), why);
  every(LOOK_MS, async () => {
    const [status, now] = await Promise.all([ask('GET', 'status', { signal }), ask('GET', 'totals', { signal })]);
    put(alerts, warnings(status));
    put(top, tiles(status, now, before));
    before = now;
  });
  every(CHARTS_MS, async () => {
    const since = samples.at(-1)?.time;
    const found = await ask('GET', 'history', { query: { since }, signal });
    samples = [...samples, ...found.samples].slice(-HOUR / found.interval_seconds);
    if (found.samples.length > 0 || since === undefined) draw();
  });
}
