// A table that can be sorted and paged. On a narrow page its rows become blocks, by the
// style sheet.

import { button, h, own, put, select } from './dom.js';
import { count } from './format.js';

// Rows shown at a time.
const ROWS_SHOWN = 50;

function compare(one, other) {
  if (one === other) return 0;
  if (one === null || one === undefined || one === '') return 1;
  if (other === null || other === undefined || other === '') return -1;
  return one < other ? -1 : 1;
}

// Columns: of text of a client, of a number, of something to do.
export const text = (label, value, more = {}) => ({ label, value, cell: (it) => value(it) && own(value(it)), ...more });
export const number = (label, value, show = count) => ({ label, value, number: true, cell: (it) => show(value(it)) });
export const act = (cell) => ({ label: '', cell, kind: 'act' });

// `columns`: {label, value(row), cell(row), number}. `sort`: [label, descending].
// Returns the element, and a function that shows other rows.
export function table(columns, { sort = null, empty = 'There is nothing here.', caption = '' } = {}) {
  const element = h('div', { class: 'table' });
  const state = { rows: [], sort, page: 0, focus: null };

  const sorted = () => {
    const column = columns.find(({ label }) => label === state.sort?.[0]);
    if (!column) return state.rows;
    const keyed = state.rows.map((row) => [column.value(row), row]);
    const sign = state.sort[1] ? -1 : 1;
    keyed.sort(([a], [b]) => {
      const order = compare(a, b);
      const missing = [a, b].some((it) => it === null || it === undefined || it === '');
      return missing ? order : sign * order;
    });
    return keyed.map(([, row]) => row);
  };

  const sortBy = (label) => {
    const [now, descending] = state.sort ?? [];
    const numeric = columns.find((column) => column.label === label).number ?? false;
    state.sort = now === label ? [label, !descending] : [label, numeric];
    state.page = 0;
    state.focus = label;
    draw();
  };

  const head = ({ label, value, number: numeric }) => {
    const direction = state.sort?.[0] === label ? (state.sort[1] ? 'descending' : 'ascending') : null;
    const arrow = direction && (direction === 'ascending' ? ' ↑' : ' ↓');
    const content = value
      ? h('button', { type: 'button', class: 'sort', data: { label }, on: { click: () => sortBy(label) } }, label, arrow)
      : label;
    return h('th', { scope: 'col', class: numeric && 'number', 'aria-sort': direction }, content);
  };

  const pager = (total) => {
    const pages = Math.max(1, Math.ceil(total / ROWS_SHOWN));
    if (pages < 2) return null;
    const to = (page) => () => {
      state.page = page;
      draw();
      element.scrollIntoView({ block: 'nearest' });
    };
    const first = state.page * ROWS_SHOWN;
    return h('nav', { class: 'pager', 'aria-label': 'Pages' },
      button('First', to(0), { off: state.page === 0 }),
      button('Previous', to(state.page - 1), { off: state.page === 0 }),
      h('span', {}, `${count(first + 1)}–${count(Math.min(total, first + ROWS_SHOWN))} of ${count(total)}`),
      button('Next', to(state.page + 1), { off: state.page >= pages - 1 }),
      button('Last', to(pages - 1), { off: state.page >= pages - 1 }));
  };

  const draw = () => {
    const all = sorted();
    if (all.length === 0) {
      put(element, h('p', { class: 'empty' }, empty));
      return;
    }
    const pages = Math.ceil(all.length / ROWS_SHOWN);
    state.page = Math.min(state.page, pages - 1);
    const shown = all.slice(state.page * ROWS_SHOWN, (state.page + 1) * ROWS_SHOWN);
    const body = shown.map((row) => h('tr', {}, columns.map(({ label, cell, value, number: numeric, kind }) =>
      h('td', { class: [numeric && 'number', kind].filter(Boolean).join(' ') || null, data: { label } },
        cell ? cell(row) : value(row)))));
    const choices = columns.filter(({ value }) => value).map(({ label }) => [label, `Sort by ${label.toLowerCase()}`]);
    put(element,
      choices.length > 0 && h('div', { class: 'sorter' }, select(choices, state.sort?.[0], sortBy)),
      h('table', {}, caption && h('caption', { class: 'hidden' }, caption),
        h('thead', {}, h('tr', {}, columns.map(head))), h('tbody', {}, body)),
      pager(all.length));
    if (state.focus !== null) {
      element.querySelector(`.sort[data-label="${state.focus}"]`)?.focus();
      state.focus = null;
    }
  };

  return {
    element,
    show(rows) {
      state.rows = rows;
      draw();
    },
  };
}
