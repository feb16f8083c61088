'use strict';

// Elements, numbers, and the state that all parts of the page share: which methods are hidden.

const content = JSON.parse(document.getElementById('content').textContent);
const several = content.runs.length > 1;

// A query, results of the same run with other settings, takes the place of the run's own: ?results=NAME.
const queries = content.runs[0]?.queries ?? [];
const chosen = queries.find(query => query.name === new URLSearchParams(location.search).get('results'));
if (chosen) content.runs[0] = { ...content.runs[0], ...chosen };

/** Makes an element. Text is added as text nodes only: no name from a run can become markup. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

/** A name from a run; isolated, because it may hold right-to-left marks. */
function name(text, attributes = {}) {
  return element('bdi', attributes, String(text));
}

/** A sentence from a run; what it has between backticks is a command. */
function sentence(text) {
  const parts = String(text).split('`');
  return element('bdi', {}, ...parts.map((part, k) => (k % 2 ? element('code', {}, part) : part)));
}

const isNumber = value => typeof value === 'number';

function decimal(value, digits = 3) {
  if (!isNumber(value)) return '–';
  const text = value.toFixed(digits);
  return (Number(text) === 0 ? (0).toFixed(digits) : text).replace('-', '−');
}

/** A number with its sign. */
function signed(value, digits = 3) {
  if (!isNumber(value)) return '–';
  const text = decimal(value, digits);
  return text.startsWith('−') ? text : `+${text}`;
}

function percent(value) {
  return isNumber(value) ? `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)}%` : '–';
}

function duration(seconds) {
  return seconds < 120 ? `${seconds.toFixed(1)} s` : `${(seconds / 60).toFixed(1)} min`;
}

/** The interval of an estimate; null where it has none. */
function interval(estimate, format = decimal) {
  return isNumber(estimate?.low) ? `${format(estimate.low)} – ${format(estimate.high)}` : null;
}

/** The sign and the meaning of a skill, for readers who see no colours. */
function judgement(direction) {
  const [sign, words] = content.directions[direction] ?? ['', ''];
  return { sign, words };
}

/** A link within the page; the style sheet gives it its sign. */
function anchor(href, label) {
  return element('a', { class: 'anchor', href, 'aria-label': label });
}

/** A heading with a link to its section. */
function heading(tag, id, ...inside) {
  return element(tag, {}, ...inside, anchor(`#${encodeURIComponent(id)}`, 'Link to this section'));
}

function fold(title, ...inside) {
  return element('details', {}, element('summary', {}, title), ...inside);
}

/** Opens the folds around an element. */
function unfold(inside) {
  for (let folded = inside.closest('details'); folded; folded = folded.parentElement.closest('details')) folded.open = true;
}

/** Goes to the part of the page that its address names, which may be folded. */
function followAddress() {
  const part = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!part?.closest('details:not([open])')) return;
  unfold(part);
  part.scrollIntoView();
}

const SHAPES = {
  circle: 'M6 1a5 5 0 1 0 0 10a5 5 0 1 0 0-10z',
  square: 'M1.5 1.5h9v9h-9z',
  triangle: 'M6 0.5l5.5 10h-11z',
  diamond: 'M6 0l6 6l-6 6l-6-6z',
  wedge: 'M6 11.5l5.5-10h-11z',
  plus: 'M4 0h4v4h4v4h-4v4h-4v-4h-4v-4h4z',
  cross: 'M0 2l2-2l4 4l4-4l2 2l-4 4l4 4l-2 2l-4-4l-4 4l-2-2l4-4z',
};
const methodNames = Object.keys(content.styles);

/** How a method is drawn in every chart; the grey of baseline methods follows the theme. */
function styleOf(method) {
  const { colour, dash, symbol, baseline } = content.styles[method];
  return { colour: baseline ? theme().baseline : colour, dash: dash.length ? dash : 'solid', symbol: SHAPES[symbol] };
}

function theme() {
  const style = getComputedStyle(document.documentElement);
  const read = property => style.getPropertyValue(property).trim();
  return {
    text: read('--text'),
    quiet: read('--quiet'),
    line: read('--line'),
    paper: read('--paper'),
    card: read('--card'),
    baseline: read('--baseline'),
    font: getComputedStyle(document.body).fontFamily,
  };
}

const hidden = new Set();
const watchers = [];

/** Calls a function now and whenever a method is shown or hidden. */
function onMethods(watcher) {
  watchers.push(watcher);
  watcher();
}

function setHidden(change) {
  change(hidden);
  for (const watcher of watchers) watcher();
}

const SVG = 'http://www.w3.org/2000/svg';

function drawing(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A small picture of how a method's line looks. */
function swatch(method) {
  const { colour, dash, symbol } = styleOf(method);
  const dashes = dash === 'solid' ? {} : { 'stroke-dasharray': dash.join(' ') };
  return drawing(
    'svg',
    { viewBox: '0 0 28 12', class: 'swatch', 'aria-hidden': 'true' },
    drawing('path', { d: 'M0 6h28', stroke: colour, 'stroke-width': 2, fill: 'none', ...dashes }),
    drawing('path', { d: symbol, fill: colour, transform: 'translate(9.5 1.5) scale(0.75)' }),
  );
}
