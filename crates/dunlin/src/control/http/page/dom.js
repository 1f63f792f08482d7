// Elements, made without markup: text from clients is only ever a text node.

import { may } from './api.js';

const SVG = 'http://www.w3.org/2000/svg';

// Longest text of a client in a table; the whole of it is where details are.
const TEXT_CHARS_MAX = 200;

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'on') {
      for (const [event, listener] of Object.entries(value)) {
        element.addEventListener(event, listener);
      }
    } else if (name === 'data') {
      Object.assign(element.dataset, value);
    } else if (name === 'value') {
      element.value = value;
    } else {
      element.setAttribute(name, value === true ? '' : String(value));
    }
  }
  element.append(...flat(children));
  return element;
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

// An element of HTML.
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

// An element of SVG.
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

// Replaces what is in an element.
export const put = (element, ...children) => element.replaceChildren(...flat(children));

// Text of a client on one line: what is invisible or turns the direction of text is
// shown as \uXXXX.
export function plain(text, max = TEXT_CHARS_MAX) {
  const shown = String(text).replace(
    /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  return shown.length > max ? `${shown.slice(0, max)}…` : shown;
}

// A button that does something. With a `role`, who has less sees which one it needs.
export function button(label, act, { kind = null, role = 'read', off = false } = {}) {
  const allowed = may(role);
  const title = allowed ? null : `Needs a token with the role ${role}`;
  const on = act === null ? {} : { click: act };
  return h('button', { type: act === null ? 'submit' : 'button', class: kind, disabled: off || !allowed, title, on }, label);
}

// The button of a form.
export const submit = (label, options = {}) => button(label, null, { kind: 'primary', ...options });

// A form that does something.
export function form(kind, act, ...children) {
  const submitted = (event) => {
    event.preventDefault();
    act();
  };
  return h('form', { class: kind, on: { submit: submitted } }, children);
}

// A control with its label.
export function field(label, control, hint = null) {
  return h('label', { class: 'field' }, h('span', {}, label), control, hint && h('small', {}, hint));
}

// A choice of few values: [value, label] each.
export function select(choices, value, change) {
  const options = choices.map(([each, label]) =>
    h('option', { value: each, selected: each === value }, label));
  return h('select', { on: { change: (event) => change?.(event.target.value) } }, options);
}

// A short notice in the corner.
export function toast(text, bad = false) {
  const box = document.getElementById('toasts');
  const notice = h('div', { class: bad ? 'toast bad' : 'toast' }, text);
  box.append(notice);
  while (box.children.length > 4) box.firstChild.remove();
  setTimeout(() => notice.remove(), bad ? 10_000 : 5_000);
}

let dialogs = 0;

// Opens a dialogue. `body` gets a function that closes it; the promise has its value.
export function dialog(title, body, kind = '') {
  return new Promise((resolve) => {
    const id = `title-${(dialogs += 1)}`;
    const box = h('dialog', { class: kind, 'aria-labelledby': id });
    const close = (value) => {
      box.addEventListener('close', () => resolve(value), { once: true });
      box.close();
    };
    box.addEventListener('cancel', (event) => {
      event.preventDefault();
      close(null);
    });
    box.addEventListener('click', (event) => {
      if (event.target === box) close(null);
    });
    const shut = h('button', { type: 'button', class: 'shut', 'aria-label': 'Close', on: { click: () => close(null) } }, '×');
    const frame = h('div', { class: 'frame', tabindex: -1 }, h('header', {}, h('h2', { id }, title), shut), body(close));
    box.append(frame);
    box.addEventListener('close', () => box.remove());
    document.body.append(box);
    box.showModal();
    (frame.querySelector('form input, form button') ?? frame).focus();
  });
}

// Asks whether something is meant. `fields` are [name, label, control]; the promise has
// their values, or null.
export function ask(title, text, act, { fields = [], danger = false } = {}) {
  return dialog(title, (close) => {
    const values = () => close(Object.fromEntries(fields.map(([name, , control]) => [name, control.value])));
    return form('stack', values,
      text && h('p', {}, text),
      fields.map(([, label, control, hint]) => field(label, control, hint)),
      h('div', { class: 'actions' }, button('Cancel', () => close(null)), submit(act, { kind: danger ? 'danger' : 'primary' })));
  });
}

// Names and values.
export function facts(rows) {
  const known = rows.filter(([, value]) => value !== null && value !== undefined && value !== '');
  return h('dl', { class: 'facts' }, known.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}

// Text of a client, in its own direction.
export const own = (text, kind = null) => h('bdi', { class: kind }, plain(text));

// Runs an order, and says what came of it; whether it was carried out.
export async function attempt(run) {
  try {
    toast(await run());
    return true;
  } catch (error) {
    toast(error.message, true);
    return false;
  }
}

// Fills an element with what is fetched, or with why it is not there.
export async function load(element, run, signal = null) {
  try {
    const found = await run();
    if (found !== undefined) put(element, found);
  } catch (error) {
    if (!signal?.aborted) put(element, h('p', { class: 'wrong' }, error.message));
  }
}

// A line of input.
export const input = (props = {}) => h('input', { type: 'text', spellcheck: 'false', autocomplete: 'off', ...props });

// A heading of a view, with what stands beside it.
export const head = (title, ...more) => h('header', { class: 'head' }, h('h1', {}, title), more);

// Says that something is under way, and how much of what is there.
export const note = () => h('p', { class: 'dim', 'aria-live': 'polite' });
