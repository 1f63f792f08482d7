// Topics while messages come, over MQTT in the browser; publish; who gets what.

import { ask, check } from './api.js';
import { attempt, button, dialog, facts, field, form, h, head, input, load, note, own, plain, put, select, submit } from './dom.js';
import { bytes, clock, count, many, rate } from './format.js';
import { PACKET_BYTES_MAX, Watch } from './mqtt.js';
import { brief, payloadView } from './payload.js';
import { table, text } from './table.js';
import { TOPICS_MAX, Tree } from './tree.js';

// Messages kept of the topic that is selected.
const MESSAGES_KEPT = 50;

// Receivers that are listed.
const RECEIVERS_MAX = 200;

const DRAW_MS = 250;

const KEY = 'dunlin-websocket';

export const title = 'Topics';

// The address of a WebSocket listener as this browser reaches it. A page over TLS may
// only open a WebSocket over TLS.
async function address(signal) {
  const kept = sessionStorage.getItem(KEY);
  if (kept) return kept;
  const { rows } = await ask('GET', 'listeners', { signal });
  const wanted = location.protocol === 'https:' ? ['wss'] : ['ws', 'wss'];
  const found = wanted.flatMap((transport) => rows.filter((row) =>
    row.transport === transport && (row.protocols.length === 0 || row.protocols.includes('mqtt'))))[0];
  if (!found) return '';
  const [, name, port] = /^(.*):(\d+)$/.exec(found.address) ?? [];
  const open = ['0.0.0.0', '[::]', '*', '127.0.0.1', '[::1]', 'localhost'].includes(name);
  return `${found.transport}://${open ? location.hostname : name}:${port}${found.path ?? '/mqtt'}`;
}

const receivers = (topic) => dialog('Who gets it', () => {
  const rows = table([
    text('Client', (it) => it.client_id, { kind: 'main' }),
    { label: 'QoS', value: (it) => it.qos, number: true },
    text('Shared with', (it) => it.share),
    { label: 'State', value: (it) => (it.connected ? 'connected' : 'away') },
    { label: 'Rules', value: (it) => (it.allowed ? 'allow it' : 'do not allow it') },
  ], { sort: ['Client', false], empty: 'No subscription matches.', caption: 'Receivers' });
  const said = note();
  load(said, async () => {
    const found = await ask('GET', 'receivers', { query: { topic, limit: RECEIVERS_MAX } });
    rows.show(found.rows);
    const out = found.groups_left_out;
    const more = out > 0 ? `, and the members of ${many(out, 'shared subscription')} more, which are not counted` : '';
    return [own(topic, 'mono'), `: ${many(found.count, 'subscription')}${more}`];
  });
  return h('div', { class: 'stack' }, said, rows.element);
}, 'wide');

function publisher() {
  const topic = input({ class: 'mono', required: true });
  const payload = h('textarea', { rows: 3, class: 'mono', spellcheck: 'false' });
  const qos = select([0, 1, 2].map((each) => [each, `QoS ${each}`]), 0);
  const retain = h('input', { type: 'checkbox' });
  qos.setAttribute('aria-label', 'QoS');
  const go = () => attempt(async () => {
    const body = { topic: topic.value, payload: payload.value, qos: Number(qos.value), retain: retain.checked };
    const { matched } = await ask('POST', 'publish', { body });
    return matched ? 'Published.' : 'Published; no subscription matches.';
  });
  const element = form('card stack', go, h('h3', {}, 'Publish'),
    field('Topic', topic), field('Payload', payload),
    h('div', { class: 'bar' }, qos, h('label', { class: 'check' }, retain, 'Retain'), submit('Publish', { role: 'operate' })));
  return { element, topic };
}

// What is known of the topic that is selected.
class Selected {
  constructor(publish) {
    this.publish = publish;
    this.element = h('section', { class: 'card stack selected' }, h('p', { class: 'dim' }, 'Select a topic to see its messages.'));
    this.node = null;
    this.messages = [];
    this.dirty = false;
  }

  show(node) {
    if (this.node === node) return;
    this.node = node;
    this.messages = node?.last ? [node.last] : [];
    if (node) this.publish.topic.value = node.path;
    this.dirty = true;
  }

  take(message) {
    if (this.node === null || this.node.last === null || message.topic !== this.node.last.topic) return;
    this.messages.unshift(this.node.last);
    this.messages.length = Math.min(this.messages.length, MESSAGES_KEPT);
    this.dirty = true;
  }

  draw() {
    if (!this.dirty || this.node === null) return;
    this.dirty = false;
    const [last, ...before] = this.messages;
    put(this.element,
      h('h3', {}, own(this.node.path, 'mono')),
      last
        ? [facts([
          ['Received', `${clock(last.at, true)}${last.retain ? ', retained' : ''}`],
          ['Payload', bytes(last.bytes)],
          ['Content type', last.type && plain(last.type)],
        ]), payloadView(last.payload)]
        : h('p', { class: 'dim' }, `${many(this.node.topics, 'topic')} below`),
      h('div', { class: 'actions' }, button('Who gets it?', () => receivers(this.node.path))),
      before.length > 0 && h('details', {}, h('summary', {}, `${before.length} before`), h('ol', { class: 'log' }, before.map((each) =>
        h('li', {}, h('time', {}, clock(each.at, true)), ' ', h('span', { class: 'mono' }, plain(brief(each.payload, 160))))))));
  }
}

// Filter, address and user of the live view.
function connection(start) {
  const url = input({ class: 'mono', placeholder: 'ws://broker.example:8083/mqtt' });
  const user = input();
  const password = input({ type: 'password' });
  const filter = input({ class: 'mono', value: '#', 'aria-label': 'Topic filter' });
  const go = submit('Watch');
  const element = form(null, start,
    h('div', { class: 'bar' }, filter, go),
    h('details', {}, h('summary', {}, 'Connection'), h('div', { class: 'bar' },
      field('WebSocket listener', url), field('User', user), field('Password', password))));
  return { element, url, user, password, filter, go };
}

// The live view: a subscription, the tree that it fills, and what is said about it.
class Live {
  constructor(publish) {
    this.form = connection(() => this.toggle());
    this.selected = new Selected(publish);
    this.tree = new Tree((node) => { this.selected.show(node); this.selected.draw(); });
    this.note = note();
    this.say('Watch a filter to see topics as messages come.');
    this.watch = null;
    this.messages = 0;
    this.before = [];
  }

  toggle() {
    if (this.watch) {
      this.stop();
      return;
    }
    const { url, filter, user, password } = this.form;
    this.tree.clear();
    this.selected.show(null);
    this.messages = 0;
    this.before = [];
    this.say('Connecting …');
    try {
      if (!/^wss?:\/\//.test(url.value)) throw new Error('The address of the WebSocket listener begins with ws:// or wss://.');
      sessionStorage.setItem(KEY, url.value);
      this.watch = new Watch({ url: url.value, filter: filter.value, user: user.value, password: password.value }, {
        ready: () => this.ready(),
        message: (message) => this.take(message),
        end: (why) => this.ended(why),
      });
      this.form.go.textContent = 'Stop';
    } catch (error) {
      this.say(error.message, true);
    }
  }

  ready() {
    this.begun = true;
    this.fresh = true;
    this.say('Waiting for messages …');
  }

  take(message) {
    this.messages += 1;
    if (this.tree.add(message)) this.selected.take(message);
    this.changed = true;
  }

  draw() {
    if (!this.watch || !this.begun) return;
    const now = performance.now();
    this.before.push([now, this.messages]);
    while (this.before.length > 1 && now - this.before[0][0] > 3_000) this.before.shift();
    const [[then, had]] = this.before;
    const speed = now > then ? ((this.messages - had) * 1000) / (now - then) : 0;
    const lost = this.tree.untracked > 0 && ` Messages of topics beyond the first ${count(TOPICS_MAX)}: ${count(this.tree.untracked)}.`;
    if (this.messages > 0) this.say([`${many(this.messages, 'message')}, ${many(this.tree.topics, 'topic')}, ${rate(speed)}.`, lost]);
    if (!this.changed) return;
    this.changed = false;
    if (this.fresh) {
      this.fresh = false;
      this.tree.unfold();
    }
    this.tree.draw();
    this.selected.draw();
  }

  say(text, wrong = false) {
    put(this.note, wrong ? h('span', { class: 'wrong' }, text) : text);
  }

  ended(why) {
    this.draw();
    this.watch = null;
    this.form.go.textContent = 'Watch';
    if (why !== null) {
      const hint = this.begun ? '' : ' Is this the address of a WebSocket listener, and does it let this page connect?';
      this.say(plain(why, 400) + hint, true);
      check();
    }
    this.begun = false;
  }

  stop() {
    this.watch?.close();
    this.say('Stopped.');
  }
}

export function open(root, { signal }) {
  const publish = publisher();
  const live = new Live(publish);
  put(root, head('Topics'), live.form.element, live.note,
    h('div', { class: 'split' }, live.tree.element, h('div', { class: 'stack' }, live.selected.element, publish.element)),
    h('p', { class: 'dim' }, `Messages larger than ${bytes(PACKET_BYTES_MAX)} are not shown; if too many come, some are left out.`));
  const timer = setInterval(() => live.draw(), DRAW_MS);
  signal.addEventListener('abort', () => {
    clearInterval(timer);
    live.stop();
  });
  address(signal).then((url) => {
    live.form.url.value = url;
    if (url === '') live.say('The broker has no WebSocket listener; enter an address under Connection.');
  }).catch((error) => { if (!signal.aborted) live.say(error.message, true); });
}
