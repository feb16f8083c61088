'use strict';

// The page, from top to bottom.

const page = document.getElementById('page');
const QUESTIONS = 'Soundness: is what a map marks really predictive? Completeness: is everything predictive marked?';

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
    resultsSwitch(),
  );
}

/** Links between the run's own results and its queries; on the page of a query alone, its name. */
function resultsSwitch() {
  const shown = several ? null : content.runs[0].query;
  if (!queries.length) return shown ? element('p', { class: 'quiet' }, 'Results of the query ', name(shown)) : null;
  const link = (href, query, ...inside) =>
    element('a', { class: 'choice', href, 'aria-current': query === chosen && 'true' }, ...inside);
  const here = queries.filter(query => query.explorer);
  const others = queries.filter(query => !query.explorer).map(query => query.name);
  return element(
    'nav',
    { class: 'choices', 'aria-label': 'Results' },
    link('?', undefined, "The run's own results"),
    ...here.map(query => link(`?${new URLSearchParams({ results: query.name })}`, query, 'Query ', name(query.name))),
    others.length ? element('p', { class: 'quiet' }, name(`Not on this page: ${others.join(', ')}`)) : null,
  );
}

/** Switches for the methods, one state for all charts; other rows of checks are told in their tables. */
function legend() {
  const measured = new Set(content.runs.flatMap(run => run.methods.map(method => method.name)));
  const buttons = methodNames.filter(method => measured.has(method)).map(method =>
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

/** What was measured and how, folded. */
function facts(run) {
  const rows = run.facts.map(([title, text]) =>
    element('div', {}, element('dt', {}, title), element('dd', {}, name(text))),
  );
  return element('div', { class: 'folded' }, fold('How it was measured', element('dl', { class: 'facts' }, ...rows)));
}

/** Warnings: a line for each kind, with its texts folded. */
function warnings(run) {
  if (!run.warnings.length) return element('div');
  return element(
    'section',
    { class: 'warnings', 'aria-label': 'Warnings' },
    element('h3', {}, 'Warnings'),
    element('ul', {}, ...run.warnings.map(warning)),
  );
}

function warning({ line, texts }) {
  const inside = texts.length > 1 ? sentences(texts) : element('p', {}, sentence(texts[0]));
  return element('li', {}, line === texts[0] ? sentence(line) : fold(sentence(line), inside));
}

/** The advice, and below it what else to know: other methods, what it depends on, how sure it can be. */
function headlines(run) {
  return element(
    'div',
    {},
    run.headlines.length
      ? element('ul', { class: 'headlines' }, ...run.headlines.map(text => element('li', {}, sentence(text))))
      : null,
    ...run.remarks.map(text => element('p', { class: 'remark' }, sentence(text))),
  );
}

function verdicts(run) {
  if (!run.verdicts.length) return element('div');
  const some = run.verdicts.length,
    all = run.comparisons;
  const whole = all === 1 ? 'The comparison in words' : `All ${all} comparisons in words`;
  const title = some === all ? whole : `Comparisons of the best methods in words (${some} of ${all})`;
  return element('section', { class: 'verdicts' }, fold(title, sentences(run.verdicts)));
}

function sentences(list) {
  return element('ul', {}, ...list.map(text => element('li', {}, sentence(text))));
}

function planeFigure({ plane, missing, methods, query }) {
  if (!plane?.points.length) {
    return element(
      'p',
      { class: 'empty' },
      missing.length
        ? 'The plane needs soundness and completeness; ' +
          `this ${query ? 'query leaves out' : 'run did not measure'} ${missing.join(' and ')}.`
        : 'No method has both a soundness and a completeness: the plane is empty.',
    );
  }
  const without = methods.length - plane.points.length;
  const caption = [
    'Up and to the right is better.',
    plane.points.some(exchangedAt)
      ? 'Each arrow starts at the values of the same maps exchanged between the samples. A symbol is empty on the right ' +
        'without skill in soundness, at the top without skill in completeness.'
      : '',
    plane.chance.some(isNumber) ? 'Dotted: the score of random maps.' : '',
    plane.points.some(point => point.front)
      ? 'The dashed line is the Pareto front: no method beats those on it on both sides.'
      : '',
    `${planeSettings(plane)}.`,
    without ? `${without} without both numbers ${without === 1 ? 'is' : 'are'} not shown.` : '',
  ];
  return chartFigure('plane', planeOption(plane), { caption: caption.filter(Boolean).join(' ') });
}

// ---- sections

function glance(run, place) {
  const id = `run-${place + 1}`;
  const title = several
    ? heading('h2', id, name(run.model), ' on ', name(run.data))
    : element('h2', { class: 'visually-hidden' }, 'At a glance');
  if (several) title.append(element('small', {}, name(run.name)));
  return element(
    'article',
    { class: 'run', id, 'data-run': run.name },
    title,
    element('div', { class: 'columns' }, headlines(run), planeFigure(run), warnings(run)),
    ranking(run),
    verdicts(run),
    facts(run),
  );
}

// ---- differences between runs

function between() {
  const compared = content.between;
  if (!compared) return null;
  return element(
    'section',
    { id: 'between' },
    heading('h2', 'between', 'Between the runs'),
    element(
      'p',
      { class: 'lead' },
      compared.tables.length
        ? `How much larger a number is in the first run than in the second, with ${percent(compared.confidence)} ` +
            'intervals that hold simultaneously for all methods. Bold: significant.'
        : 'Nothing can be compared between these runs.',
    ),
    ...compared.tables.map(({ title, note, table }) =>
      element(
        'div',
        { 'data-between': title },
        element('h3', {}, name(title)),
        element('p', { class: 'quiet' }, note),
        methodTable(title, table),
      ),
    ),
    compared.verdicts.length
      ? element('div', { class: 'verdicts' }, fold('In words', sentences(compared.verdicts)))
      : null,
    compared.notes.length
      ? element('div', { class: 'warnings' }, element('h3', {}, 'Notes'), sentences(compared.notes))
      : null,
  );
}

function curves() {
  const metrics = [...new Map(content.runs.flatMap(run => run.metrics).map(metric => [metric.key, metric])).values()];
  if (!metrics.length) return null;
  const shown = new Set(content.runs.flatMap(run => run.metrics.filter(metric => !metric.folded).map(metric => metric.key)));
  const grid = (...inside) => element('div', { class: several ? 'stack' : 'grid' }, ...inside);
  const folded = metrics.filter(metric => !shown.has(metric.key));
  return element(
    'section',
    { id: 'curves' },
    heading('h2', 'curves', 'Curves'),
    element('p', { class: 'lead' }, 'Hover over a chart to see its values. ', bandNote()),
    grid(tradeoffSection(), ...metrics.filter(metric => shown.has(metric.key)).map(metricSection)),
    folded.length ? moreMetrics(folded, grid(...folded.map(metricSection))) : null,
  );
}

function moreMetrics(metrics, inside) {
  const names = metrics.map(metric => metric.name).join(', ');
  const title = [`More metrics (${metrics.length})`, element('small', {}, name(names))];
  const folded = fold(element('span', {}, ...title), inside);
  folded.classList.add('more-metrics');
  folded.id = 'more-metrics';
  return folded;
}

function metricSection(metric) {
  return element(
    'section',
    { class: 'metric', id: `curve-${metric.key}` },
    heading('h3', `curve-${metric.key}`, name(metric.title)),
    element('p', { class: 'quiet' }, metric.meaning[0]),
    element('div', { class: several ? 'grid' : '' }, ...content.runs.map(run => curvePanel(run, metric.key))),
  );
}

function bandNote() {
  const some = content.runs.find(run =>
    run.methods.some(method => Object.values(method.metrics).some(curve => curve.low?.some(isNumber))),
  );
  if (!some) return 'There are no intervals, and therefore no bands.';
  const many = some.resamples ? ` (${some.resamples} resamples)` : '';
  return `Bands are ${percent(some.confidence ?? 0.95)} bootstrap intervals over samples${many}.`;
}

/** What a chart shows, after the name of its run where there are several. */
function chartCaption(run, measured) {
  return element('span', {}, ...(several ? [name(run.name), ': '] : []), name(measured));
}

function curvePanel(run, key) {
  const metric = run.metrics.find(candidate => candidate.key === key);
  const caption = several ? name(run.name) : '';
  if (!metric)
    return element(
      'figure',
      {},
      element('p', { class: 'empty' }, 'This run did not measure it.'),
      element('figcaption', {}, caption),
    );
  const measured = [metric.name, metric.settings].filter(Boolean).join(', ');
  const scale = fold('Scale', element('p', { class: 'quiet' }, metric.meaning.slice(1).join(' ')));
  return element('div', {}, chartFigure(key, curveOption(run, metric), { caption: chartCaption(run, measured) }), scale);
}

// ---- checks of other papers

function checks() {
  const checked = content.runs.filter(run => run.checks?.length);
  if (!checked.length) return null;
  return element(
    'section',
    { id: 'checks' },
    heading('h2', 'checks', 'Checks'),
    element('p', { class: 'lead' }, 'Tests of the methods from other papers, and of the measurement itself, with 95% intervals.'),
    ...checked.map(run =>
      element(
        'div',
        { class: 'grid', 'data-run': run.name },
        several ? element('h3', { class: 'wide' }, name(run.name)) : null,
        ...run.checks.map(checkPanel),
      ),
    ),
  );
}

/** The numbers of each step: a chart, or a table where steps are names. */
function courseOf(check) {
  if (check.stepTable) {
    const about = element('p', { class: 'quiet' }, name(`${check.courseTitle}:`));
    return [about, methodTable(`${check.title} steps`, check.stepTable, { rowTitle: check.stepTitle })];
  }
  return check.steps.length > 1 ? [chartFigure(`check ${check.name}`, stepsOption(check))] : [];
}

function checkPanel(check) {
  const notes = [check.reading, ...check.notes].map(text => element('p', { class: 'quiet' }, name(text)));
  const inside = [
    methodTable(check.title, check.table, { rowTitle: check.rows }),
    ...courseOf(check),
    ...notes,
    element('p', { class: 'quiet' }, name(`${check.options}. ${check.source}.`)),
  ];
  // A check of the run as a whole is one line; its numbers by method are folded.
  const body = check.line
    ? [element('p', {}, name(check.line)), fold(`By ${check.rows}`, ...inside)]
    : [element('p', {}, name(check.question)), ...inside];
  return element('section', { class: 'check', 'data-check': check.name }, element('h3', {}, name(check.title)), ...body);
}

function footer() {
  return element(
    'footer',
    {},
    element(
      'p',
      {},
      `Written by twinlens ${content.version}. ` +
        (several || !content.runs[0].query ? 'results.json in the run directory has every number. ' : '') +
        'Charts by Apache ECharts.',
    ),
  );
}

addEventListener('hashchange', followAddress);
addEventListener('load', followAddress);
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
