// The page: the token, the views and the way from one to another, and what is shown
// while the broker does not answer.

import * as api from './api.js';
import { button, field, form, h, input, put, submit } from './dom.js';
import * as bans from './bans.js';
import * as broker from './broker.js';
import * as clients from './clients.js';
import * as now from './now.js';
import * as queues from './queues.js';
import * as retained from './retained.js';
import * as topics from './topics.js';

const VIEWS = { now, clients, queues, topics, retained, bans, broker };

const app = document.getElementById('app');
const banner = document.getElementById('banner');

let view = null;

function explain(failure) {
  if (failure.status === 401) {
    return 'The broker does not know this token.';
  }
  if (failure.status === 429) {
    return `Too many wrong tokens came from this address. Try again ${failure.wait ? `in ${failure.wait} s` : 'later'}.`;
  }
  return failure.message;
}

function login(message = null) {
  close();
  document.title = 'Dunlin';
  const token = input({ type: 'password', name: 'token', required: true, placeholder: 'dunlin_…' });
  const wrong = h('p', { class: 'wrong', role: 'alert' }, message);
  const go = submit('Open');
  const open = async () => {
    go.disabled = true;
    put(wrong);
    try {
      await api.enter(token.value.trim());
      shell();
    } catch (failure) {
      api.leave();
      put(wrong, explain(failure));
      token.select();
    }
    go.disabled = false;
  };
  put(app, h('main', { id: 'main', class: 'login' }, form('card stack', open,
    h('h1', {}, mark(), 'Dunlin'),
    field('Token', token), wrong, go,
    h('p', { class: 'dim' }, 'Make a token where the broker runs: ', h('code', {}, 'dunlin ctl token add NAME --role read'),
      '. It stays in this tab until it is closed.'))));
  token.focus();
}

const mark = () => h('img', { src: 'page/icon.svg', alt: '', width: 26, height: 26 });

function shell() {
  const links = Object.entries(VIEWS).map(([key, { title }]) => h('a', { href: `#/${key}`, data: { view: key } }, title));
  const { name, role } = api.who();
  const out = button('Log out', () => { api.leave(); login(); }, { kind: 'small' });
  put(app,
    h('header', { class: 'top' }, h('a', { class: 'brand', href: '#/now' }, mark(), 'Dunlin'),
      h('nav', { 'aria-label': 'Views' }, links),
      h('div', { class: 'me' }, h('span', { title: 'The token, and what it may do' }, `${name} · ${role}`), out)),
    h('main', { id: 'main', tabindex: -1 }));
  route();
}

function close() {
  view?.abort();
  view = null;
  document.querySelectorAll('dialog').forEach((each) => each.close());
}

// Calls a function now and again until the view is left; only while the page is seen.
function repeater(signal, wrong) {
  return (pause, act, at_once = true) => {
    let busy = false;
    const run = async () => {
      if (busy || document.hidden || signal.aborted) return;
      busy = true;
      try {
        await act();
        wrong(null);
      } catch (error) {
        if (!signal.aborted) wrong(error);
      }
      busy = false;
    };
    const timer = setInterval(run, pause);
    document.addEventListener('visibilitychange', run, { signal });
    signal.addEventListener('abort', () => clearInterval(timer));
    if (at_once) run();
  };
}

function route() {
  if (!document.querySelector('header.top')) return;
  close();
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const key = Object.hasOwn(VIEWS, path) ? path : 'now';
  const main = document.getElementById('main');
  document.querySelectorAll('nav [data-view]').forEach((link) => {
    if (link.dataset.view === key) {
      link.setAttribute('aria-current', 'page');
      link.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    } else {
      link.removeAttribute('aria-current');
    }
  });
  document.title = `${VIEWS[key].title} – Dunlin`;
  view = new AbortController();
  const { signal } = view;
  const wrong = h('p', { class: 'wrong', role: 'alert' });
  const content = h('div', { class: 'view', data: { view: key } });
  put(main, wrong, content);
  window.scrollTo(0, 0);
  const say = (error) => put(wrong, error && error.status !== 0 ? error.message : null);
  VIEWS[key].open(content, { signal, every: repeater(signal, say), params: new URLSearchParams(query ?? '') });
}

api.events.addEventListener('offline', () => {
  banner.hidden = false;
  put(banner, 'The broker does not answer. Trying again …', button('Try now', api.retry, { kind: 'small' }));
});

api.events.addEventListener('online', () => {
  banner.hidden = true;
  put(banner);
  if (api.hasToken()) shell();
});

api.events.addEventListener('refused', () => {
  if (!document.querySelector('header.top')) return;
  api.leave();
  login('The broker does not know this token any more.');
});

window.addEventListener('hashchange', route);

async function begin() {
  if (!api.hasToken()) {
    login();
    return;
  }
  try {
    await api.resume();
    shell();
  } catch (failure) {
    if (failure.status === 0) return;
    api.leave();
    login(explain(failure));
  }
}

begin();
