// Small charts of the last hour, in SVG. Where the pointer or the arrow keys are, the
// legend shows the values of that time.

import { h, put, s } from './dom.js';
import { clock } from './format.js';

const HEIGHT = 150;
const LEFT = 62;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;

// Longest time between two samples that a line crosses, in seconds.
const GAP_SECONDS = 35;

// Shortest time that a chart shows, in seconds.
const SPAN_MIN = 120;

// Colours there are for series.
const COLOURS = 6;

// The smallest round number that is not below.
function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 6, 8, 10].find((step) => step * power >= value * 0.999) * power;
}

// A step between marks on the time axis, in seconds.
const stepOf = (span) => [30, 60, 120, 300, 600, 900, 1200].find((step) => span / step <= 5) ?? 1800;

// `series`: {name, of(sample)} each; a value may be null. `options`: unit(value) for
// people, stacked, `binary` for a scale in powers of two, `least` for its end.
export class Chart {
  constructor(title, series, { unit, stacked = false, binary = false, least = 0, hint = null }) {
    this.series = series;
    this.options = { unit, stacked, binary, least };
    this.samples = [];
    this.at = null;
    this.svg = s('svg', { role: 'img', tabindex: 0, height: HEIGHT, 'aria-label': title });
    this.legend = h('ul', { class: 'legend' });
    this.note = h('p', { class: 'none', hidden: true }, 'Nothing in this time.');
    this.element = h('section', { class: 'card chart' },
      h('h3', { title: hint }, title), h('div', { class: 'plot' }, this.svg, this.note), this.legend);
    this.title = title;
    this.svg.addEventListener('pointermove', (event) => this.point(event.offsetX));
    this.svg.addEventListener('pointerleave', () => this.look(null));
    this.svg.addEventListener('blur', () => this.look(null));
    this.svg.addEventListener('keydown', (event) => this.step(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  // Shows samples, the oldest first, of the last `span` seconds up to `now`.
  show(samples, now, span) {
    this.samples = samples.filter(({ time }) => time >= now - span);
    this.now = now;
    this.span = span;
    this.draw();
  }

  // Series with their values, those left out that have none at all where a chart has many.
  values() {
    const all = this.series.map((one, index) => {
      const values = this.samples.map((sample) => one.of(sample));
      const some = values.some((value) => value !== null && value !== undefined && value !== 0);
      return { name: one.name, colour: index % COLOURS, values, some };
    });
    return all.length > 2 ? all.filter(({ some }) => some) : all;
  }

  draw() {
    const width = this.svg.clientWidth;
    if (width === 0) return;
    const shown = this.values();
    this.shown = shown;
    const first = this.samples[0]?.time ?? this.now;
    const start = Math.max(this.now - this.span, Math.min(first, this.now - SPAN_MIN));
    const x = (time) => LEFT + ((time - start) / (this.now - start)) * (width - LEFT - RIGHT);
    const tops = this.samples.map((_, at) => {
      const values = shown.map(({ values: of }) => of[at] ?? 0);
      return this.options.stacked ? values.reduce((sum, value) => sum + value, 0) : Math.max(0, ...values);
    });
    const most = this.scale(Math.max(this.options.least, ...tops));
    const y = (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);
    this.x = x;
    this.note.hidden = shown.length > 0 && shown.some(({ some }) => some);
    this.cursor = s('line', { class: 'cursor', y1: TOP, y2: HEIGHT - BOTTOM, visibility: 'hidden' });
    this.svg.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
    put(this.svg, this.grid(width, most, y), this.times(start, x), this.lines(shown, x, y), this.cursor);
    this.look(this.at);
  }

  scale(most) {
    if (!this.options.binary) return nice(most);
    const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(1, most)) / 10));
    return nice(most / unit) * unit;
  }

  grid(width, most, y) {
    return [0, most / 2, most].map((value) => [
      s('line', { class: value === 0 ? 'axis' : 'rule', x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      s('text', { class: 'mark', x: LEFT - 6, y: y(value) + 4, 'text-anchor': 'end' }, this.options.unit(value)),
    ]);
  }

  times(start, x) {
    const step = stepOf(this.now - start);
    const marks = [];
    for (let time = Math.ceil(start / step) * step; time <= this.now; time += step) {
      // The last mark must not be cut off.
      if (x(time) > this.svg.clientWidth - (step < 60 ? 28 : 18)) break;
      marks.push(s('text', { class: 'mark', x: x(time), y: HEIGHT - 5, 'text-anchor': 'middle' },
        clock(time, step < 60)));
    }
    return marks;
  }

  // Runs of samples without a gap, as lists of indexes that have a value.
  runs(values) {
    const runs = [];
    let run = [];
    this.samples.forEach(({ time }, at) => {
      const missing = values[at] === null || values[at] === undefined;
      const gap = at > 0 && time - this.samples[at - 1].time > GAP_SECONDS;
      if (run.length > 0 && (missing || gap)) {
        runs.push(run);
        run = [];
      }
      if (!missing) run.push(at);
    });
    if (run.length > 0) runs.push(run);
    return runs;
  }

  // Lines, or with `stacked` areas upon each other. What is below one line alone is shaded.
  lines(shown, x, y) {
    const { stacked } = this.options;
    const below = this.samples.map(() => 0);
    const place = (at, value) => `${x(this.samples[at].time).toFixed(1)},${y(value).toFixed(1)}`;
    return shown.map(({ values, colour }) => {
      const floor = [...below];
      const tops = values.map((value, at) => (value ?? 0) + floor[at]);
      if (stacked) below.splice(0, below.length, ...tops);
      return this.runs(values).map((run) => {
        const top = run.map((at) => place(at, tops[at]));
        if (run.length === 1) {
          const [cx, cy] = top[0].split(',');
          return s('circle', { class: `fill c${colour}`, cx, cy, r: 2.5 });
        }
        const base = run.map((at) => place(at, floor[at])).reverse();
        return [
          (stacked || shown.length === 1) && s('polygon', { class: `area c${colour}`, points: [...top, ...base].join(' ') }),
          s('polyline', { class: `line c${colour}`, points: top.join(' ') }),
        ];
      });
    });
  }

  point(left) {
    if (this.samples.length === 0) return;
    const distance = (at) => Math.abs(this.x(this.samples[at].time) - left);
    const nearest = this.samples.reduce((best, _, at) => (distance(at) < distance(best) ? at : best), 0);
    this.look(this.samples[nearest].time);
  }

  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || this.samples.length === 0) return;
    event.preventDefault();
    const last = this.samples.length - 1;
    const at = this.at === null ? last + 1 : this.samples.findIndex(({ time }) => time === this.at);
    this.look(this.samples[Math.max(0, Math.min(last, at + by))].time);
  }

  // Values of a time, or of the last one.
  look(time) {
    const found = time === null ? -1 : this.samples.findIndex((sample) => sample.time === time);
    this.at = found < 0 ? null : time;
    const at = found < 0 ? this.samples.length - 1 : found;
    const texts = (this.shown ?? []).map(({ name, colour, values }) => {
      const value = values[at];
      const text = value === null || value === undefined ? '–' : this.options.unit(value);
      return [name, colour, text];
    });
    put(this.legend, texts.map(([name, colour, text]) =>
      h('li', {}, h('span', { class: `key c${colour}` }), `${name} `, h('b', {}, text))),
    found >= 0 && h('li', { class: 'when' }, clock(time, true)));
    this.svg.setAttribute('aria-label',
      `${this.title}: ${texts.map(([name, , text]) => `${name} ${text}`).join(', ') || 'nothing in this time'}`);
    if (!this.cursor) return;
    this.cursor.setAttribute('visibility', found < 0 ? 'hidden' : 'visible');
    if (found >= 0) {
      this.cursor.setAttribute('x1', this.x(time));
      this.cursor.setAttribute('x2', this.x(time));
    }
  }
}
