'use strict';

// Tables with a row for each method: the ranking, differences between runs, and checks.

/**
 * A table that scrolls inside its own box with the names of methods kept, and can be had as CSV.
 *
 * A column has a `key` for the file, a `title`, the `numbers` of a method (value, low, high), and perhaps how to `show`
 * the value, a `format` of its interval, `attributes` of its cells, something `more` in them, and an `order` of methods
 * by which its heading sorts.
 */
function methodTable(title, methods, columns, { about = '', badges = () => [] } = {}) {
  const body = element('tbody');
  const fill = sorted => {
    body.replaceChildren(...sorted.map(method => methodRow(method, columns, badges(method))));
    markHidden(body);
  };
  const first = { title: 'method', explanation: about, order: about ? () => 0 : null, direction: 'descending' };
  const heads = [first, ...columns].map(column => columnHead(column, methods, fill));
  if (about) heads[0].setAttribute('aria-sort', first.direction);
  fill(methods);
  onMethods(() => markHidden(body));
  const table = element('table', { class: 'ranking' }, element('thead', {}, element('tr', {}, ...heads)), body);
  return element(
    'div',
    { class: 'table' },
    element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': title }, table),
    element(
      'p',
      { class: 'downloads' },
      csvDownload(title, () => csvRows(methods, columns)),
    ),
  );
}

function markHidden(body) {
  for (const row of body.rows) row.classList.toggle('off', hidden.has(row.dataset.method));
}

function columnHead({ title, explanation, order, direction }, methods, fill) {
  const head = element('th', { scope: 'col', title: explanation });
  const sort = () => {
    for (const other of head.parentNode.children) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', direction);
    fill([...methods].sort(order));
  };
  const text = title.replace(/ (?=[↑↓]$)/, '\u00a0'); // an arrow stays with its word
  head.append(order ? element('button', { type: 'button', onclick: sort }, text) : name(text));
  return head;
}

function methodRow(method, columns, badges) {
  return element(
    'tr',
    { 'data-method': method.name, class: method.control ? 'control' : null },
    element(
      'th',
      { scope: 'row' },
      swatch(method.name),
      name(method.name),
      element('span', { class: 'badges' }, ...badges),
    ),
    ...columns.map(column => numberCell(column, method)),
  );
}

function numberCell(
  { numbers, show = value => decimal(value), format = decimal, attributes = () => ({}), more = () => [] },
  method,
) {
  const [value, low, high] = numbers(method);
  const between = interval([low, high], format);
  return element(
    'td',
    attributes(method),
    element('span', {}, show(value, method)),
    between ? element('small', {}, between) : null,
    ...more(method),
  );
}

function csvRows(methods, columns) {
  const heads = columns.flatMap(({ key }) => [key, `${key}_low`, `${key}_high`]);
  return [
    ['method', ...heads],
    ...methods.map(method => [method.name, ...columns.flatMap(({ numbers }) => numbers(method))]),
  ];
}

const orUndefined = value => (isNumber(value) ? decimal(value) : 'not defined');

// ---- the ranking

function ranking(run) {
  if (!run.methods.length || !run.metrics.length) return element('div');
  const columns = [
    ...run.metrics.flatMap(metric => metricColumns(run, metric)),
    ...(run.beside ?? []).map(besideColumn),
  ];
  const judged = columns.some(column => column.skill);
  return element(
    'div',
    { class: 'standings' },
    methodTable(several ? `ranking ${run.name}` : 'ranking', run.methods, columns, {
      about: 'Sort by the sum of the ranks in soundness and completeness, controls last',
      badges: method => badges(run, method),
    }),
    judged ? skillNote() : null,
    glossary(run),
  );
}

/** The columns of a metric: its value, and beside it the skill if it is a headline metric that has it. */
function metricColumns(run, metric) {
  const sign = metric.higherIsBetter ? -1 : 1;
  const curve = method => method.metrics[metric.key];
  const value = {
    key: metric.key,
    title: metric.heading,
    explanation: metric.summary,
    direction: metric.higherIsBetter ? 'descending' : 'ascending',
    order: ordered(method => sign * (curve(method)?.area ?? sign * Infinity)),
    numbers: method => [curve(method)?.area, ...(curve(method)?.interval ?? [null, null])],
    show: orUndefined,
    attributes: method => ({
      'data-metric': metric.key,
      class: metric.best === method.name ? 'best' : null,
      title: [curve(method)?.area ?? 'not defined', rankTitle(curve(method)), skillTitle(curve(method))]
        .filter(Boolean)
        .join(', '),
    }),
  };
  const judged = run.methods.some(method => curve(method)?.control);
  return run.sides.includes(metric.key) && judged ? [value, skillColumn(metric, curve)] : [value];
}

function skillColumn(metric, curve) {
  const control = method => curve(method)?.control;
  return {
    key: `${metric.key}_skill`,
    skill: true,
    title: 'skill ↑',
    explanation: `How much better in ${metric.name} than the same maps exchanged between the samples`,
    direction: 'descending',
    order: ordered(method => -(control(method)?.skill ?? -Infinity)),
    numbers: method => [control(method)?.skill, control(method)?.low, control(method)?.high],
    show: (_, method) => skillText(curve(method)),
    format: signed,
    attributes: method => ({
      'data-skill': metric.key,
      class: judgement(curve(method)).kind || null,
      title: skillTitle(curve(method)),
    }),
    more: method =>
      curve(method)?.direction ? [element('span', { class: 'visually-hidden' }, judgement(curve(method)).words)] : [],
  };
}

/** A column beside the metrics: what maps are like by themselves, and what checks found. */
function besideColumn(column) {
  const sign = column.descending ? -1 : 1;
  const found = method => column.values[method.name];
  return {
    key: column.name,
    title: oneLine(column.heading),
    explanation: column.summary,
    direction: column.descending ? 'descending' : 'ascending',
    order: ordered(method => sign * (found(method)?.value ?? sign * Infinity)),
    numbers: method => [found(method)?.value, found(method)?.low, found(method)?.high],
    attributes: method => ({
      'data-beside': column.name,
      title: found(method) ? `${found(method).samples} samples have a value` : null,
    }),
  };
}

/** Sorting is stable; controls come last by any column. */
const ordered = key => (a, b) => a.control - b.control || key(a) - key(b) || 0;

/** A heading of two lines in one. */
const oneLine = heading => heading.replace('-\n', '').replace('\n', ' ');

function badges(run, method) {
  const share = run.frontShares[method.name];
  const front = isNumber(share)
    ? `On the Pareto front, also in ${percent(share)} of the resamples`
    : 'On the Pareto front';
  return [
    ...(run.front.includes(method.name) ? [element('span', { class: 'badge', title: front }, 'front')] : []),
    ...(method.control ? [element('span', { class: 'badge quiet', title: 'Looks at no model' }, 'control')] : []),
  ];
}

function rankTitle(curve) {
  return curve?.ranks ? `rank ${[...new Set(curve.ranks)].join(' to ')}` : null;
}

/** What stands behind a skill, in a line; null where it was not measured. */
function skillTitle(curve) {
  const control = curve?.control;
  if (!isNumber(control?.skill)) return null;
  const between = skillInterval(curve);
  return [
    `skill ${signed(control.skill)}${between ? ` (${between})` : ''}: ${judgement(curve).words}`,
    `exchanged ${decimal(control.value)}`,
    isNumber(control.p) ? `p = ${decimal(control.p)}` : null,
    `${control.samples} samples`,
  ]
    .filter(Boolean)
    .join(', ');
}

function skillNote() {
  const signs = Object.values(DIRECTIONS).flatMap(({ sign, kind, words }) => [
    element('span', { class: kind }, sign),
    ` ${words}; `,
  ]);
  return element(
    'p',
    { class: 'quiet' },
    'Skill: ',
    ...signs,
    'decided by its interval. Bold: beyond doubt the best of those that know their input; controls do not count.',
  );
}

/** What each number is, its range, and what is good; behind one click. */
function glossary(run) {
  const beside = (run.beside ?? []).map(({ heading: title, summary }) => [
    oneLine(title),
    summary.replace(/[.?]?$/, end => end || '.'),
  ]);
  const entries = [...run.metrics.map(metric => [metric.heading, metric.meaning.join(' ')]), ...run.terms, ...beside];
  const rows = entries.map(([title, text]) =>
    element('div', {}, element('dt', {}, name(title)), element('dd', {}, name(text))),
  );
  return element(
    'div',
    { class: 'glossary' },
    fold('What these numbers are, and their scales', element('dl', {}, ...rows)),
  );
}

// ---- differences between runs

function betweenTable(pairs) {
  const [{ first, second }] = pairs;
  const title = `${first} − ${second}`;
  // As in the ranking, skill stands beside the headline metrics alone; the words have all.
  const sides = new Set(content.runs.flatMap(run => run.sides));
  const shown = pairs.filter(pair => pair.quantity === 'area' || sides.has(pair.metric));
  const columns = [...new Map(shown.map(pair => [`${pair.metric} ${pair.quantity}`, pair])).values()];
  const methods = [...new Set(pairs.map(pair => pair.method))].map(method => ({ name: method }));
  return element(
    'div',
    { 'data-between': title },
    element('h3', {}, name(title)),
    element('p', { class: 'quiet' }, betweenSamples(pairs)),
    methodTable(
      title,
      methods,
      columns.map(column => betweenColumn(pairs, column)),
    ),
  );
}

function betweenColumn(pairs, { metric, quantity }) {
  const known = content.runs.flatMap(run => run.metrics).find(candidate => candidate.key === metric);
  const area = quantity === 'area';
  const pair = method =>
    pairs.find(each => each.method === method.name && each.metric === metric && each.quantity === quantity);
  return {
    key: area ? metric : `${metric}_${quantity}`,
    title: area ? (known?.heading ?? metric) : `${known?.name ?? metric}: skill ↑`,
    numbers: method => [pair(method)?.difference, pair(method)?.low, pair(method)?.high],
    show: (value, method) => (isNumber(value) ? signed(value) : pair(method) ? 'not reached' : '–'),
    format: signed,
    attributes: method => ({ title: pairTitle(pair(method)), class: pair(method)?.decided ? 'best' : null }),
  };
}

function pairTitle(pair) {
  if (!isNumber(pair?.difference)) return null;
  return [
    isNumber(pair.p_adjusted)
      ? `p = ${decimal(pair.p_adjusted)}, by itself ${decimal(pair.p_value)}`
      : 'without an interval',
    pair.paired ? `${pair.samples[0]} samples, paired` : `${pair.samples[0]} and ${pair.samples[1]} samples`,
  ].join(', ');
}

function betweenSamples(pairs) {
  const { paired, samples } = pairs.find(pair => pair.quantity === 'area') ?? pairs[0];
  return paired ? `Paired, on ${samples[0]} samples of both.` : `Independent samples: ${samples[0]} and ${samples[1]}.`;
}

// ---- checks

function checkTable(check) {
  const columns = check.columns.map((title, k) => ({
    key: title,
    title,
    numbers: method => [method.values[k].value, method.values[k].low, method.values[k].high],
    show: orUndefined,
    attributes: method => ({ title: `${method.values[k].samples} of ${check.samples} samples have a value` }),
    more: method =>
      method.values[k].samples < check.samples
        ? [element('small', {}, `${method.values[k].samples} of ${check.samples}`)]
        : [],
  }));
  return methodTable(check.title, check.methods, columns);
}
