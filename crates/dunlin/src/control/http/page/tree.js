// Topics as a tree, with the last message of each: bounded, no matter what arrives.

import { h, own, plain, put } from './dom.js';
import { many, short } from './format.js';
import { brief } from './payload.js';

// Topics that are kept; messages of further ones are only counted.
export const TOPICS_MAX = 5_000;

// Levels of the tree; what is deeper is one name.
const LEVELS_MAX = 24;

// Rows that are shown.
const ROWS_MAX = 1_000;

// Bytes of a payload that are kept.
const PAYLOAD_KEPT = 8_192;

// 2 comes before 10.
const byNumber = new Intl.Collator('en', { numeric: true });

class Topic {
  constructor(name, path, level) {
    this.name = name;
    this.path = path;
    this.level = level;
    this.below = new Map();
    this.order = null;
    this.count = 0;
    this.topics = 0;
    this.last = null;
    this.open = false;
  }

  sorted() {
    this.order ??= [...this.below.values()].sort((a, b) => byNumber.compare(a.name, b.name));
    return this.order;
  }
}

function levels(topic) {
  const names = topic.split('/');
  if (names.length <= LEVELS_MAX) return names;
  return [...names.slice(0, LEVELS_MAX - 1), names.slice(LEVELS_MAX - 1).join('/')];
}

export class Tree {
  constructor(selected) {
    this.onSelect = selected;
    this.element = h('div', { class: 'tree', role: 'tree', 'aria-label': 'Topics', on: { keydown: (event) => this.key(event) } });
    this.clear();
  }

  clear() {
    this.top = new Topic('', '', 0);
    this.topics = 0;
    this.untracked = 0;
    this.rows = new Map();
    this.shown = [];
    this.selected = null;
    put(this.element, h('p', { class: 'empty' }, 'No messages yet.'));
  }

  // Takes a message; whether its topic is kept.
  add(message) {
    const path = levels(message.topic);
    let at = this.top;
    const way = [at];
    for (const name of path) {
      let next = at.below.get(name);
      if (!next) {
        // A new level is a new topic below it.
        if (this.topics >= TOPICS_MAX) {
          this.untracked += 1;
          return false;
        }
        next = new Topic(name, at === this.top ? name : `${at.path}/${name}`, at.level + 1);
        at.below.set(name, next);
        at.order = null;
      }
      at = next;
      way.push(at);
    }
    const fresh = at.last === null;
    if (fresh) this.topics += 1;
    for (const each of way) {
      each.count += 1;
      if (fresh) each.topics += 1;
    }
    const payload = message.payload.length > PAYLOAD_KEPT ? message.payload.slice(0, PAYLOAD_KEPT) : message.payload;
    at.last = { ...message, payload, bytes: message.payload.length, at: Date.now() / 1000 };
    return true;
  }

  // Shows what has come.
  draw() {
    const visible = [];
    const walk = (node) => {
      for (const each of node.sorted()) {
        if (visible.length >= ROWS_MAX) return;
        visible.push(each);
        if (each.open) walk(each);
      }
    };
    walk(this.top);
    visible.forEach((node) => this.fill(node));
    const same = visible.length === this.shown.length && visible.every((node, at) => node === this.shown[at]);
    if (same) return;
    const focus = this.shown.find((node) => this.rows.get(node)?.row === document.activeElement);
    this.shown = visible;
    put(this.element, visible.map((node) => this.rows.get(node).row));
    const kept = new Set(visible);
    for (const node of this.rows.keys()) if (!kept.has(node)) this.rows.delete(node);
    if (focus) this.rows.get(focus)?.row.focus();
    this.rove();
  }

  fill(node) {
    let parts = this.rows.get(node);
    if (!parts) {
      parts = { mark: h('span', { class: 'mark', 'aria-hidden': 'true' }), value: h('span', { class: 'value' }), count: h('span', { class: 'count' }) };
      parts.row = h('div', { role: 'treeitem', class: 'row', tabindex: -1, 'aria-level': node.level, on: { click: () => this.select(node, true) } },
        parts.mark, h('span', { class: 'name' }, node.name === '' ? '(empty)' : own(node.name)), parts.value, parts.count);
      parts.row.style.setProperty('--level', node.level - 1);
      this.rows.set(node, parts);
    }
    const branch = node.below.size > 0;
    parts.mark.textContent = branch ? (node.open ? '▾' : '▸') : '';
    const value = node.last === null ? many(node.topics, 'topic') : plain(brief(node.last.payload));
    if (parts.value.textContent !== value) parts.value.textContent = value;
    parts.value.classList.toggle('dim', node.last === null);
    parts.count.textContent = short(node.count);
    if (branch) parts.row.setAttribute('aria-expanded', String(node.open));
    parts.row.setAttribute('aria-selected', String(node === this.selected));
  }

  // One row can be reached with the tabulator.
  rove() {
    const to = this.shown.includes(this.selected) ? this.selected : this.shown[0];
    for (const node of this.shown) this.rows.get(node).row.tabIndex = node === to ? 0 : -1;
  }

  select(node, toggle) {
    this.selected = node;
    if (toggle && node.below.size > 0) node.open = !node.open;
    this.draw();
    this.rove();
    this.rows.get(node)?.row.focus();
    this.onSelect(node);
  }

  // Opens the top while there is little below it.
  unfold() {
    for (const node of this.top.sorted().slice(0, 8)) {
      if (node.below.size > 0 && node.below.size <= 20) node.open = true;
    }
  }

  key(event) {
    const at = this.shown.findIndex((node) => this.rows.get(node).row === document.activeElement);
    if (at < 0) return;
    const node = this.shown[at];
    const to = (index) => {
      const target = this.shown[Math.max(0, Math.min(this.shown.length - 1, index))];
      this.select(target, false);
    };
    const above = () => this.shown.slice(0, at).findLastIndex(({ level }) => level < node.level);
    const acts = {
      ArrowDown: () => to(at + 1),
      ArrowUp: () => to(at - 1),
      Home: () => to(0),
      End: () => to(this.shown.length - 1),
      ArrowRight: () => (node.below.size > 0 && !node.open ? this.select(node, true) : to(at + 1)),
      ArrowLeft: () => (node.open ? this.select(node, true) : to(Math.max(0, above()))),
      Enter: () => this.select(node, true),
      ' ': () => this.select(node, true),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}
