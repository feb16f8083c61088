'use strict';

// Tables with one row per method: the results, differences between runs, and checks. Python decides what is in them.

let allColumns = false;
const columnWatchers = [];

/** Shows or hides the columns beside the headline, in all tables of the page. */
function setAllColumns(shown) {
  allColumns = shown;
  for (const watcher of columnWatchers) watcher();
}

/** The columns of a table with the headline first, and its rows alike. */
function headlineFirst({ columns, rows }) {
  const order = columns.map((_, k) => k).sort((a, b) => Boolean(columns[b].headline) - Boolean(columns[a].headline));
  const ordered = list => order.map(k => list[k]);
  return { columns: ordered(columns), rows: rows.map(row => ({ ...row, cells: ordered(row.cells) })) };
}

/** A table that scrolls inside its own box and keeps the names of methods in view, with a CSV download. */
function methodTable(title, content, { about = '', badges = () => [], rowTitle = 'method' } = {}) {
  const { columns, rows } = headlineFirst(content);
  const body = element('tbody');
  const fill = sorted => {
    body.replaceChildren(...sorted.map(row => methodRow(row, columns, badges(row))));
    markHidden(body);
  };
  const first = element('th', { scope: 'col', title: about, 'aria-sort': about ? 'descending' : null });
  first.append(about ? sortButton(first, rowTitle, 'descending', () => fill(rows)) : rowTitle);
  const heads = columns.map((column, k) => columnHead(column, () => fill([...rows].sort(byColumn(column, k)))));
  fill(rows);
  onMethods(() => markHidden(body));
  const table = element('table', { class: 'ranking' }, element('thead', {}, element('tr', {}, first, ...heads)), body);
  return element(
    'div',
    { class: 'table' },
    columnSwitch(columns, table),
    element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': title }, table),
    element(
      'p',
      { class: 'downloads' },
      csvDownload(title, () => csvRows(rowTitle, columns, rows)),
    ),
  );
}

/** A column beside the headline is hidden until it is asked for; a table without a headline shows all. */
const isMore = ({ headline }) => headline === false;

function columnSwitch(columns, table) {
  const more = columns.filter(isMore).length;
  if (!more || more === columns.length) {
    table.classList.add('all');
    return null;
  }
  const button = element('button', { type: 'button', class: 'plain more-columns', onclick: () => setAllColumns(!allColumns) });
  const follow = () => {
    table.classList.toggle('all', allColumns);
    button.textContent = allColumns ? 'Fewer columns' : `More columns (${more})`;
    button.setAttribute('aria-expanded', String(allColumns));
  };
  columnWatchers.push(follow);
  follow();
  return button;
}

function markHidden(body) {
  for (const row of body.rows) row.classList.toggle('off', hidden.has(row.dataset.method));
}

/** Sorting is stable; baseline methods come last in any order. */
const byColumn = (column, k) => {
  const sign = column.descending ? -1 : 1;
  const key = row => sign * (row.cells[k].estimate?.value ?? sign * Infinity);
  return (a, b) => a.baseline - b.baseline || key(a) - key(b) || 0;
};

/** The heading of a column in one line. */
const inOneLine = heading => heading.replaceAll('\n', ' ');

function columnHead(column, fill) {
  const { heading, summary, descending, chance, settings } = column;
  const head = element('th', { scope: 'col', title: summary || null, class: isMore(column) ? 'more' : null });
  const text = inOneLine(heading).replace(/ (?=[↑↓]$)/, '\u00a0'); // an arrow stays with its word
  head.append(sortButton(head, text, descending ? 'descending' : 'ascending', fill));
  for (const text of [settings, isNumber(chance) ? `chance ${chance}` : null].filter(Boolean)) {
    head.append(element('small', {}, name(text)));
  }
  return head;
}

function sortButton(head, text, direction, fill) {
  const sort = () => {
    for (const other of head.parentNode.children) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', direction);
    fill();
  };
  return element('button', { type: 'button', onclick: sort }, text);
}

function methodRow(row, columns, badges) {
  return element(
    'tr',
    { 'data-method': row.method, class: row.baseline ? 'baseline' : null },
    element(
      'th',
      { scope: 'row' },
      content.styles[row.method] ? swatch(row.method) : null,
      name(row.method),
      element('span', { class: 'badges' }, ...badges),
    ),
    ...row.cells.map((cell, k) => numberCell(cell, columns[k])),
  );
}

function numberCell({ estimate, signed: sign, bold, direction, details, remark }, column) {
  const { key, kind, digits } = column;
  const format = value => (sign ? signed : decimal)(value, digits ?? 3);
  const between = interval(estimate, format);
  const meaning = judgement(direction);
  return element(
    'td',
    {
      title: details,
      class: [bold ? 'best' : direction, isMore(column) ? 'more' : null].filter(Boolean).join(' ') || null,
      'data-metric': kind === 'area' ? key : null,
      'data-skill': kind === 'skill' ? key.replace(/_skill$/, '') : null,
      'data-side': kind === 'side' ? key : null,
    },
    element('span', {}, `${meaning.sign} ${format(estimate?.value)}`.trim()),
    between ? element('small', {}, between) : null,
    direction ? element('span', { class: 'visually-hidden' }, meaning.words) : null,
    remark ? element('small', {}, remark) : null,
  );
}

function csvRows(rowTitle, columns, rows) {
  return [
    [rowTitle, ...columns.flatMap(({ key }) => [key, `${key}_low`, `${key}_high`])],
    ...rows.map(row => [
      row.method,
      ...row.cells.flatMap(({ estimate }) => [estimate?.value, estimate?.low, estimate?.high]),
    ]),
  ];
}

// ---- the results

function ranking(run) {
  if (!run.methods.length || !run.metrics.length) return element('div');
  const changed = new Map(run.methods.map(({ name: method, about }) => [method, about.changed]));
  return element(
    'div',
    { class: 'standings' },
    methodTable(several ? `ranking ${run.name}` : 'ranking', run.table, {
      about: 'Sort by the sum of the ranks in soundness and completeness, baseline methods last',
      badges: row => badges(row, changed.get(row.method)),
    }),
    tableNotes(run),
    methodNotes(run),
    glossary(run),
  );
}

function badges({ front, baseline }, changed) {
  return [
    ...(isNumber(front)
      ? [element('span', { class: 'badge', title: `On the Pareto front in ${percent(front)} of the resamples` }, 'front')]
      : []),
    ...(baseline ? [element('span', { class: 'badge quiet', title: 'Ignores the model' }, 'baseline')] : []),
    ...(changed.length
      ? [element('span', { class: 'options', title: 'Options that differ from their defaults' }, name(optionText(changed)))]
      : []),
  ];
}

const optionText = options => options.map(option => option.join('\u00a0')).join(', ');

/** How to read the signs and the type of the table. */
function tableNotes(run) {
  const { columns, rows } = run.table;
  const cells = rows.flatMap(row => row.cells);
  const notes = [];
  if (columns.some(column => column.kind === 'skill')) {
    const signs = Object.entries(content.directions).flatMap(([direction, [sign, words]], k) => [
      k ? '; ' : '',
      element('span', { class: direction }, sign),
      ` ${words}`,
    ]);
    notes.push(['Skill: ', ...signs, '; decided by its interval.']);
  }
  if (columns.some(column => column.headline)) {
    notes.push([
      element('b', {}, 'Bold'),
      ', in soundness and completeness only: clearly better than the baselines and all other methods with skill.',
    ]);
  }
  if (cells.some(({ estimate }) => isNumber(estimate?.low))) {
    notes.push([`Small: ${percent(run.confidence ?? 0.95)} intervals.`]);
  }
  if (rows.some(row => row.baseline)) notes.push(['Grey: baselines, which ignore the model.']);
  if (run.methods.some(({ about }) => about.changed.length)) {
    notes.push(['Below a name: options that differ from their defaults.']);
  }
  return element('div', { class: 'quiet table-notes' }, ...notes.map(note => element('p', {}, ...note)));
}

/** Each method with its options as run, its time, and what was done with negative values, folded. */
function methodNotes(run) {
  const rows = run.methods.map(({ name: method, about }) => {
    const { description, changed, usual, seconds, negative } = about;
    const options = [
      ...(changed.length ? [element('b', {}, name(optionText(changed)))] : []),
      ...(changed.length && usual.length ? ['; by default '] : []),
      ...(usual.length ? [name(optionText(usual))] : []),
    ];
    const facts = [
      `Negative values: ${negative}.`,
      ...(isNumber(seconds) ? [`Maps and probes took ${duration(seconds)}.`] : []),
    ];
    return element(
      'div',
      { 'data-method': method },
      element('dt', {}, swatch(method), name(method)),
      element(
        'dd',
        {},
        element('p', {}, name(description)),
        options.length ? element('p', {}, 'Options: ', ...options, '.') : null,
        element('p', { class: 'quiet' }, name(facts.join(' '))),
      ),
    );
  });
  return element('div', { class: 'folded methods' }, fold('Methods and their options', element('dl', {}, ...rows)));
}

/** The meaning, range and better direction of each number, folded. */
function glossary(run) {
  const sides = run.table.columns.filter(column => column.kind === 'side');
  const entries = [
    ...run.metrics.map(metric => [metric.heading, [...metric.meaning, ...(metric.settings ? [`Here with ${metric.settings}.`] : [])].join(' ')]),
    ...run.terms,
    ...sides.map(({ heading, summary }) => [inOneLine(heading), summary.replace(/[.?]?$/, end => end || '.')]),
  ];
  const rows = entries.map(([title, text]) =>
    element('div', {}, element('dt', {}, name(title)), element('dd', {}, name(text))),
  );
  return element(
    'div',
    { class: 'folded glossary' },
    fold('What these numbers mean, and their scales', element('dl', {}, ...rows)),
  );
}
