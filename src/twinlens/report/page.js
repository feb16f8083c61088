'use strict';

// The page, from top to bottom.

const page = document.getElementById('page');
const several = content.runs.length > 1;
const QUESTIONS = 'Soundness: is what a map marks really predictive? Completeness: is all that is predictive marked?';

function header() {
  const [first] = content.runs;
  const title = several ? ['How far can these maps be trusted?'] : [name(first.model), ' on ', name(first.data)];
  return element(
    'header',
    {},
    element('p', { class: 'brand' }, 'twinlens'),
    element('h1', {}, ...title),
    element('p', { class: 'lead' }, several ? `${content.runs.length} runs side by side. ${QUESTIONS}` : QUESTIONS),
    several ? null : element('p', { class: 'quiet' }, `${first.samples} samples, ${first.quality}`),
  );
}

/** Switches for the methods, one state for all charts. */
function legend() {
  const buttons = methodNames.map(method =>
    element(
      'button',
      {
        type: 'button',
        class: 'method',
        'data-method': method,
        onclick: () => setHidden(set => (set.has(method) ? set.delete(method) : set.add(method))),
      },
      swatch(method),
      name(method),
    ),
  );
  const all = element(
    'button',
    { type: 'button', class: 'plain', onclick: () => setHidden(set => set.clear()) },
    'Show all',
  );
  onMethods(() => {
    for (const button of buttons) {
      button.setAttribute('aria-pressed', String(!hidden.has(button.dataset.method)));
      button.querySelector('svg').replaceWith(swatch(button.dataset.method));
    }
    all.disabled = hidden.size === 0;
  });
  return element('nav', { class: 'legend', 'aria-label': 'Methods shown in all charts' }, ...buttons, all);
}

function facts(run) {
  const rows = run.facts.map(([title, text]) =>
    element('div', {}, element('dt', {}, title), element('dd', {}, name(text))),
  );
  return element('dl', { class: 'facts' }, ...rows);
}

/** Splits a warning into its first sentence and the rest. */
function splitSentence(text) {
  const end = text.search(/[.!?]\s+[A-Z]/);
  return end < 0 ? [text, ''] : [text.slice(0, end + 1), text.slice(end + 1).trim()];
}

/** Warnings: of each its first sentence, the rest and the same of other methods folded behind it; all beyond four. */
function warnings(run) {
  if (!run.warnings.length) return element('div');
  const list = some => element('ul', {}, ...some.map(warning));
  const shown = run.warnings.length > 5 ? 4 : 5;
  const rest = run.warnings.slice(shown);
  return element(
    'section',
    { class: 'warnings', 'aria-label': 'Warnings' },
    element('h3', {}, 'Mind this'),
    list(run.warnings.slice(0, shown)),
    rest.length ? fold(`${rest.length} more warnings`, list(rest)) : null,
  );
}

function warning([first, ...others]) {
  const [lead, more] = splitSentence(first);
  const folded = [
    more ? element('p', {}, name(more)) : null,
    others.length ? element('p', {}, 'The same of others:') : null,
    others.length ? sentences(others) : null,
  ];
  const title = others.length ? `More, and ${others.length} alike` : 'More';
  return element('li', {}, name(lead), ...(more || others.length ? [' ', fold(title, ...folded)] : []));
}

function headlines(run) {
  if (!run.headlines.length) return element('div');
  return element('ul', { class: 'headlines' }, ...run.headlines.map(sentence => element('li', {}, name(sentence))));
}

function verdicts(run) {
  if (!run.verdicts.length) return element('div');
  const some = run.verdicts.length, all = run.comparisons;
  const title = some === all ? `All ${all} comparisons in words` : `Comparisons of the best methods in words (${some} of ${all})`;
  const few = run.verdicts.join().length < 400;
  return element(
    'section',
    { class: 'verdicts' },
    few ? sentences(run.verdicts) : fold(title, sentences(run.verdicts)),
  );
}

function sentences(list) {
  return element('ul', {}, ...list.map(sentence => element('li', {}, name(sentence))));
}

function fold(title, ...inside) {
  return element('details', {}, element('summary', {}, title), ...inside);
}

function plane(run) {
  const missing = SIDES.filter((_, side) => run.plane[side] === null);
  const points = run.methods.filter(method => planePoint(run, method));
  if (missing.length || !points.length) {
    return element(
      'p',
      { class: 'empty' },
      missing.length
        ? `The plane needs soundness and completeness; this run did not measure ${missing.join(' and ')}.`
        : 'No method has both a soundness and a completeness, so that the plane is empty.',
    );
  }
  const chart = element('div', { class: 'chart plane', 'data-chart': 'plane' });
  requestAnimationFrame(() => drawChart(chart, planeOption(run)));
  const without = run.methods.length - points.length;
  return element(
    'figure',
    {},
    chart,
    element(
      'figcaption',
      {},
      'Up and to the right is better. ',
      points.some(method => exchangedPoint(run, method))
        ? 'Each arrow starts where the same maps come to when they are exchanged between the samples. A symbol is empty ' +
            'on the right without skill in soundness, at the top without skill in completeness. '
        : '',
      run.front.length ? 'The dashed line is the Pareto front: no method beats those on it on both sides.' : '',
      without ? ` ${without} without both numbers ${without === 1 ? 'is' : 'are'} missing here.` : '',
    ),
  );
}

// ---- the ranking table

function ranking(run) {
  if (!run.methods.length || !run.metrics.length) return element('div');
  const body = element('tbody');
  const columns = rankingColumns(run);
  const table = element(
    'table',
    { class: 'ranking' },
    element('thead', {}, element('tr', {}, ...rankingHeads(run, columns, body))),
    body,
  );
  fillRanking(run, columns, body, run.methods);
  onMethods(() => {
    for (const row of body.rows) row.classList.toggle('off', hidden.has(row.dataset.method));
  });
  return element(
    'div',
    { class: 'standings' },
    element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Ranking' }, table),
    columns.some(column => column.skill) ? skillNote() : null,
    run.beside?.length ? besideNote(run.beside) : null,
  );
}

function besideNote(columns) {
  const said = columns.map(({ summary, heading }) => `${oneLine(heading)}: ${summary.replace(/[.?]?$/, end => end || '.')}`);
  return element('p', { class: 'quiet' }, name(said.join(' ')));
}

/** A heading of two lines in one. */
const oneLine = heading => heading.replace('-\n', '').replace('\n', ' ');

function skillNote() {
  return element(
    'p',
    { class: 'quiet' },
    'Skill: how much better than the same maps exchanged between the samples. ',
    element('span', { class: 'knows' }, '✓'),
    ' knows its input; ',
    element('span', { class: 'ignorant' }, '✗'),
    ' does no better than maps of other inputs, whatever its value. Bold: beyond doubt the best of those that know ' +
      'their input; controls do not count.',
  );
}

/** The columns: one for each metric, and one for the skill beside each headline metric that has it. */
function rankingColumns(run) {
  const metrics = run.metrics.flatMap(metric => {
    const sign = metric.higherIsBetter ? -1 : 1;
    const areas = {
      metric,
      title: metric.heading,
      explanation: metric.summary,
      key: method => sign * (method.metrics[metric.key]?.area ?? sign * Infinity),
      direction: metric.higherIsBetter ? 'descending' : 'ascending',
      cell: rankingCell,
    };
    const judged = run.methods.some(method => method.metrics[metric.key]?.control);
    if (!run.sides.includes(metric.key) || !judged) return [areas];
    const skill = {
      metric,
      skill: true,
      title: 'skill ↑',
      explanation: `How much better in ${metric.name} than the same maps exchanged between the samples`,
      key: method => -(method.metrics[metric.key]?.control?.skill ?? -Infinity),
      direction: 'descending',
      cell: skillCell,
    };
    return [areas, skill];
  });
  return [...metrics, ...(run.beside ?? []).map(besideColumn)];
}

/** A column beside the metrics: what maps are like by themselves, and what checks found. */
function besideColumn(column) {
  const sign = column.descending ? -1 : 1;
  return {
    title: oneLine(column.heading),
    explanation: column.summary,
    key: method => sign * (column.values[method.name]?.value ?? sign * Infinity),
    direction: column.descending ? 'descending' : 'ascending',
    cell: method => besideCell(column, column.values[method.name]),
  };
}

function besideCell(column, value) {
  const between = value ? interval([value.low, value.high]) : null;
  return element(
    'td',
    { 'data-beside': column.name, title: value ? `${value.defined} samples have a value` : null },
    element('span', {}, isNumber(value?.value) ? decimal(value.value) : '–'),
    between ? element('small', {}, between) : null,
  );
}

function rankingHeads(run, columns, body) {
  const heads = [];
  const sort = (head, methods, direction) => {
    for (const other of heads) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', direction);
    fillRanking(run, columns, body, methods);
  };
  const add = (title, explanation, methods, direction) => {
    const head = element(
      'th',
      { scope: 'col', title: explanation },
      element('button', { type: 'button', onclick: () => sort(head, methods(), direction) }, title),
    );
    heads.push(head);
    return head;
  };
  const overall = 'Sort by the sum of the ranks in soundness and completeness, controls last';
  add('method', overall, () => run.methods, 'descending').setAttribute('aria-sort', 'descending');
  for (const { title, explanation, key, direction } of columns) {
    // Sorting is stable; controls come last by any column.
    const order = (a, b) => a.control - b.control || key(a) - key(b) || 0;
    add(title, explanation, () => [...run.methods].sort(order), direction);
  }
  return heads;
}

function fillRanking(run, columns, body, methods) {
  const rows = methods.map(method =>
    element(
      'tr',
      {
        'data-method': method.name,
        class: [method.control ? 'control' : '', hidden.has(method.name) ? 'off' : ''].join(' ').trim() || null,
      },
      rankingName(run, method),
      ...columns.map(column => column.cell(method, column.metric)),
    ),
  );
  body.replaceChildren(...rows);
}

function rankingName(run, method) {
  const badges = [
    run.front.includes(method.name)
      ? element('span', { class: 'badge', title: frontTitle(run, method) }, 'front')
      : null,
    method.control ? element('span', { class: 'badge quiet', title: 'Looks at no model' }, 'control') : null,
  ];
  return element(
    'th',
    { scope: 'row' },
    swatch(method.name),
    name(method.name),
    element('span', { class: 'badges' }, ...badges),
  );
}

function frontTitle(run, method) {
  const share = run.frontShares[method.name];
  return isNumber(share) ? `On the Pareto front, also in ${percent(share)} of the resamples` : 'On the Pareto front';
}

function rankingCell(method, metric) {
  const curve = method.metrics[metric.key];
  const area = curve?.area;
  const ranks = curve?.ranks
    ? curve.ranks[0] === curve.ranks[1]
      ? `rank ${curve.ranks[0]}`
      : `rank ${curve.ranks.join(' to ')}`
    : null;
  return element(
    'td',
    {
      'data-metric': metric.key,
      class: metric.best === method.name ? 'best' : null,
      title: [isNumber(area) ? String(area) : 'not defined', ranks, skillTitle(curve)].filter(Boolean).join(', '),
    },
    element('span', {}, isNumber(area) ? decimal(area) : 'not defined'),
    interval(curve?.interval) ? element('small', {}, interval(curve.interval)) : null,
  );
}

function skillCell(method, metric) {
  const curve = method.metrics[metric.key];
  const control = curve?.control;
  const { sign, kind, words } = judgement(curve?.knows);
  const between = skillInterval(control);
  return element(
    'td',
    { 'data-skill': metric.key, title: skillTitle(curve) },
    element('span', { class: kind }, isNumber(control?.skill) ? `${sign} ${signed(control.skill)}`.trim() : '–'),
    between ? element('small', {}, between) : null,
    kind ? element('span', { class: 'visually-hidden' }, words) : null,
  );
}

/** What stands behind a skill, in a line; null where it was not measured. */
function skillTitle(curve) {
  const control = curve?.control;
  if (!control || !isNumber(control.skill)) return null;
  const between = skillInterval(control);
  return [
    `skill ${signed(control.skill)}${between ? ` (${between})` : ''}: ${judgement(curve.knows).words}`,
    `exchanged ${decimal(control.value)}`,
    isNumber(control.p) ? `p = ${decimal(control.p)}` : null,
    `${control.samples} samples`,
  ]
    .filter(Boolean)
    .join(', ');
}

// ---- sections

function glance(run) {
  const heading = several
    ? element('h2', {}, name(run.model), ' on ', name(run.data), element('small', {}, name(run.name)))
    : element('h2', { class: 'visually-hidden' }, 'At a glance');
  return element(
    'article',
    { class: 'run', 'data-run': run.name },
    heading,
    element('div', { class: 'columns' }, headlines(run), plane(run), warnings(run)),
    ranking(run),
    verdicts(run),
    facts(run),
  );
}

// ---- differences between runs

function between() {
  const compared = content.between;
  if (!compared) return null;
  const pairs = new Map();
  for (const pair of compared.pairs) {
    const runs = JSON.stringify([pair.first, pair.second]);
    pairs.set(runs, [...(pairs.get(runs) ?? []), pair]);
  }
  return element(
    'section',
    { id: 'between' },
    element('h2', {}, 'Between the runs'),
    element(
      'p',
      { class: 'lead' },
      pairs.size
        ? `How much larger a number is in the first run than in the second, with ${percent(compared.confidence)} ` +
            'intervals that hold for all methods at once. Bold: beyond doubt.'
        : 'Nothing can be compared between these runs.',
    ),
    ...[...pairs.values()].map(betweenTable),
    compared.verdicts.length ? fold('In words', sentences(compared.verdicts)) : null,
    compared.notes.length
      ? element('div', { class: 'warnings' }, element('h3', {}, 'Mind this'), sentences(compared.notes))
      : null,
  );
}

function betweenTable(pairs) {
  const [{ first, second }] = pairs;
  const title = `${first} − ${second}`;
  // As in the ranking, skill stands beside the headline metrics alone; the words have all.
  const sides = new Set(content.runs.flatMap(run => run.sides));
  const shown = pairs.filter(pair => pair.quantity === 'area' || sides.has(pair.metric));
  const columns = [...new Map(shown.map(pair => [`${pair.metric} ${pair.quantity}`, pair])).values()];
  const methods = [...new Set(pairs.map(pair => pair.method))];
  const cell = (method, { metric, quantity }) =>
    betweenCell(pairs.find(pair => pair.method === method && pair.metric === metric && pair.quantity === quantity));
  const head = column => element('th', { scope: 'col' }, name(betweenHead(column)));
  const rows = methods.map(method =>
    element(
      'tr',
      { 'data-method': method },
      element('th', { scope: 'row' }, swatch(method), name(method)),
      ...columns.map(column => cell(method, column)),
    ),
  );
  onMethods(() => rows.forEach(row => row.classList.toggle('off', hidden.has(row.dataset.method))));
  const table = element(
    'table',
    { class: 'ranking' },
    element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'method'), ...columns.map(head))),
    element('tbody', {}, ...rows),
  );
  return element(
    'div',
    { 'data-between': title },
    element('h3', {}, name(title)),
    element('p', { class: 'quiet' }, betweenSamples(pairs)),
    element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': title }, table),
  );
}

function betweenHead({ metric, quantity }) {
  const known = content.runs.flatMap(run => run.metrics).find(candidate => candidate.key === metric);
  return quantity === 'area' ? (known?.heading ?? metric) : `${known?.name ?? metric}: skill ↑`;
}

function betweenSamples(pairs) {
  const { paired, samples } = pairs.find(pair => pair.quantity === 'area') ?? pairs[0];
  return paired ? `Paired, on ${samples[0]} samples of both.` : `Independent samples: ${samples[0]} and ${samples[1]}.`;
}

function betweenCell(pair) {
  if (!isNumber(pair?.difference)) return element('td', {}, element('span', {}, pair ? 'not reached' : '–'));
  const ends = isNumber(pair.low) ? `${signed(pair.low)} to ${signed(pair.high)}` : null;
  const title = [
    isNumber(pair.p_adjusted) ? `p = ${decimal(pair.p_adjusted)}, by itself ${decimal(pair.p_value)}` : 'without an interval',
    pair.paired ? `${pair.samples[0]} samples, paired` : `${pair.samples[0]} and ${pair.samples[1]} samples`,
  ].join(', ');
  return element(
    'td',
    { title, class: pair.decided ? 'best' : null },
    element('span', {}, signed(pair.difference)),
    ends ? element('small', {}, ends) : null,
  );
}

function curves() {
  const metrics = [...new Map(content.runs.flatMap(run => run.metrics).map(metric => [metric.key, metric])).values()];
  if (!metrics.length) return null;
  return element(
    'section',
    { id: 'curves' },
    element('h2', {}, 'Curves'),
    element('p', { class: 'lead' }, 'Point at a chart for its values. ', bandNote()),
    element(
      'div',
      { class: several ? 'stack' : 'grid' },
      ...metrics.map(metric =>
        element(
          'section',
          { class: 'metric' },
          element('h3', {}, name(metric.title)),
          element('p', { class: 'quiet' }, `${metric.summary[0].toUpperCase()}${metric.summary.slice(1)}.`),
          element('div', { class: several ? 'grid' : '' }, ...content.runs.map(run => curvePanel(run, metric.key))),
        ),
      ),
    ),
  );
}

function bandNote() {
  const some = content.runs.find(run =>
    run.methods.some(method => Object.values(method.metrics).some(curve => curve.low)),
  );
  if (!some) return 'There are no intervals here, and so no bands.';
  const many = some.resamples ? ` (${some.resamples} resamples)` : '';
  return `Bands are ${percent(some.confidence ?? 0.95)} bootstrap intervals over samples${many}.`;
}

function curvePanel(run, key) {
  const metric = run.metrics.find(candidate => candidate.key === key);
  const caption = several ? element('figcaption', {}, name(run.name)) : null;
  if (!metric) return element('figure', {}, element('p', { class: 'empty' }, 'This run did not measure it.'), caption);
  const chart = element('div', { class: 'chart', 'data-chart': key });
  requestAnimationFrame(() => drawChart(chart, curveOption(run, metric)));
  return element('figure', {}, chart, caption);
}

// ---- checks of other papers

function checks() {
  const checked = content.runs.filter(run => run.checks?.length);
  if (!checked.length) return null;
  return element(
    'section',
    { id: 'checks' },
    element('h2', {}, 'Checks'),
    element('p', { class: 'lead' }, 'What tests of other papers say of the same methods. Intervals are of 95 %.'),
    ...checked.map(run =>
      element(
        'div',
        { class: 'grid', 'data-run': run.name },
        several ? element('h3', { class: 'wide' }, name(run.name)) : null,
        ...run.checks.map(check => checkPanel(check)),
      ),
    ),
  );
}

function checkPanel(check) {
  const said = [check.reading, ...check.notes].map(text => element('p', { class: 'quiet' }, name(text)));
  return element(
    'section',
    { class: 'check', 'data-check': check.name },
    element('h3', {}, name(check.title)),
    element('p', {}, name(check.question)),
    checkTable(check),
    check.steps.length > 1 ? checkChart(check) : null,
    ...said,
    element('p', { class: 'quiet' }, name(`${check.options}. ${check.source}.`)),
  );
}

function checkTable(check) {
  const head = title => element('th', { scope: 'col' }, name(title));
  const rows = check.methods.map(method =>
    element(
      'tr',
      { 'data-method': method.name },
      element('th', { scope: 'row' }, swatch(method.name), name(method.name)),
      ...method.values.map(value => checkCell(value, check.samples)),
    ),
  );
  onMethods(() => rows.forEach(row => row.classList.toggle('off', hidden.has(row.dataset.method))));
  const table = element(
    'table',
    { class: 'ranking' },
    element('thead', {}, element('tr', {}, head('method'), ...check.columns.map(head))),
    element('tbody', {}, ...rows),
  );
  return element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': check.title }, table);
}

function checkCell(value, samples) {
  const between = interval([value.low, value.high]);
  return element(
    'td',
    { title: `${value.defined} of ${samples} samples have a value` },
    element('span', {}, isNumber(value.value) ? decimal(value.value) : 'not defined'),
    between ? element('small', {}, between) : null,
    value.defined < samples ? element('small', {}, `${value.defined} of ${samples}`) : null,
  );
}

function checkChart(check) {
  const chart = element('div', { class: 'chart', 'data-chart': `check ${check.name}` });
  requestAnimationFrame(() => drawChart(chart, stepsOption(check)));
  return element('figure', {}, chart);
}

function footer() {
  return element(
    'footer',
    {},
    element(
      'p',
      {},
      `Written by twinlens ${content.version}. Areas are means over the range of a curve; results.json in the run ` +
        'directory has every number. Charts by Apache ECharts.',
    ),
  );
}

page.append(
  header(),
  legend(),
  element(
    'main',
    {},
    element('section', { id: 'glance', class: several ? 'runs' : '' }, ...content.runs.map(glance)),
    ...[between(), curves(), checks(), explorer()].filter(Boolean),
  ),
  footer(),
);
