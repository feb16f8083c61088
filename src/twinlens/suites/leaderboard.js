'use strict';

// The table of submissions: methods × tasks, filtered by suite, kind of method and metric.

const METRICS = [
  ['soundness_rank', 'soundness'],
  ['completeness_share', 'completeness'],
  ['calibration', 'calibration'],
];
const OWN = { skill: key => key.replace(/_(skill|truth)$/, '') };
const metricOf = ({ key }) => (key === 'milliseconds' || key === 'calls' ? 'cost' : OWN.skill(key));
const state = { suite: content.tasks[0].suite, kind: '', metric: '' };
const page = document.getElementById('page');
const board = element('div', { class: 'board' });

/** The choices of the metric filter: the headline metrics, others by their keys, the cost, and all. */
function metricChoices() {
  const keys = new Set(content.tasks.flatMap(task => task.columns.map(metricOf)));
  const named = METRICS.filter(([key]) => keys.has(key));
  const others = [...keys].filter(key => key !== 'cost' && !named.some(([known]) => known === key));
  return [...named, ...others.map(key => [key, key]), ['cost', 'cost'], ['', 'all']];
}

function filter(label, key, choices) {
  const options = choices.map(([value, text]) => element('option', { value, selected: value === state[key] }, text));
  const select = element('select', { onchange: event => show({ [key]: event.target.value }) }, ...options);
  return element('label', {}, label, select);
}

function suiteChoices() {
  const titles = new Map(content.tasks.map(({ suite, title }) => [suite, `${title} (${suite})`]));
  return [...titles, ['', 'all']];
}

function kindChoices() {
  const methods = new Set(content.tasks.flatMap(task => task.rows.map(row => row.method)));
  const kinds = new Set([...methods].map(method => content.kinds[method]).filter(Boolean));
  return [['', 'all'], ...[...kinds].sort().map(kind => [kind, kind])];
}

/** The chosen columns of the chosen tasks side by side; a row for each method of any of them. */
function chosenTable() {
  const tasks = content.tasks.filter(task => !state.suite || task.suite === state.suite);
  const places = tasks.flatMap(task =>
    task.columns
      .map((column, k) => ({ task, column, k }))
      .filter(({ column }) => !state.metric || metricOf(column) === state.metric),
  );
  const found = new Map();
  for (const row of tasks.flatMap(task => task.rows)) if (!found.has(row.method)) found.set(row.method, row);
  const shown = [...found.values()].filter(row => !state.kind || content.kinds[row.method] === state.kind);
  const rows = shown.map(({ method, baseline }) => ({
    method,
    baseline,
    cells: places.map(({ task, k }) => task.rows.find(row => row.method === method)?.cells[k] ?? missing(task, method)),
  }));
  const columns = places.map(({ task, column }) => ({ ...column, settings: tasks.length > 1 ? task.label : null }));
  return { columns, rows: rows.sort((a, b) => a.baseline - b.baseline) };
}

function missing(task, method) {
  const why = task.refused[method];
  return { estimate: null, details: why ?? 'not measured', remark: why ? 'refuses' : null };
}

function show(change) {
  Object.assign(state, change);
  board.replaceChildren(methodTable('Methods by suite', chosenTable()));
}

function described(task) {
  return element(
    'div',
    {},
    element('dt', {}, name(`${task.label}: ${task.title}`)),
    ...[task.about, task.note, ...task.refusals].filter(Boolean).map(text => element('dd', {}, name(text))),
  );
}

page.append(
  element(
    'header',
    {},
    element('p', { class: 'brand' }, 'twinlens'),
    element('h1', {}, 'Which explanation, on which model'),
    element('p', { class: 'lead' }, content.legend),
  ),
  element(
    'div',
    { class: 'filters' },
    filter('Suite', 'suite', suiteChoices()),
    filter('Kind of method', 'kind', kindChoices()),
    filter('Metric', 'metric', metricChoices()),
  ),
  board,
  element('section', { class: 'tasks' }, element('h2', {}, 'Tasks'), element('dl', {}, ...content.tasks.map(described))),
);
show({});
