'use strict';

// Tables with one row per method: the results, differences between runs, and checks. Python decides what is in them.

/** A table that scrolls inside its own box and keeps the names of methods in view, with a CSV download. */
function methodTable(title, { columns, rows }, { about = '', badges = () => [] } = {}) {
  const body = element('tbody');
  const fill = sorted => {
    body.replaceChildren(...sorted.map(row => methodRow(row, columns, badges(row))));
    markHidden(body);
  };
  const first = element('th', { scope: 'col', title: about, 'aria-sort': about ? 'descending' : null });
  first.append(about ? sortButton(first, 'method', 'descending', () => fill(rows)) : 'method');
  const heads = columns.map((column, k) => columnHead(column, () => fill([...rows].sort(byColumn(column, k)))));
  fill(rows);
  onMethods(() => markHidden(body));
  const table = element('table', { class: 'ranking' }, element('thead', {}, element('tr', {}, first, ...heads)), body);
  return element(
    'div',
    { class: 'table' },
    element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': title }, table),
    element(
      'p',
      { class: 'downloads' },
      csvDownload(title, () => csvRows(columns, rows)),
    ),
  );
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
const inOneLine = heading => heading.replace('-\n', '').replace('\n', ' ');

function columnHead({ heading, summary, descending, chance }, fill) {
  const head = element('th', { scope: 'col', title: summary || null });
  const text = inOneLine(heading).replace(/ (?=[↑↓]$)/, '\u00a0'); // an arrow stays with its word
  head.append(sortButton(head, text, descending ? 'descending' : 'ascending', fill));
  if (isNumber(chance)) head.append(element('small', {}, `chance ${chance}`));
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
      swatch(row.method),
      name(row.method),
      element('span', { class: 'badges' }, ...badges),
    ),
    ...row.cells.map((cell, k) => numberCell(cell, columns[k])),
  );
}

function numberCell({ estimate, signed: sign, bold, direction, details, remark }, { key, kind }) {
  const format = sign ? signed : decimal;
  const between = interval(estimate, format);
  const meaning = judgement(direction);
  return element(
    'td',
    {
      title: details,
      class: bold ? 'best' : direction,
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

function csvRows(columns, rows) {
  return [
    ['method', ...columns.flatMap(({ key }) => [key, `${key}_low`, `${key}_high`])],
    ...rows.map(row => [
      row.method,
      ...row.cells.flatMap(({ estimate }) => [estimate?.value, estimate?.low, estimate?.high]),
    ]),
  ];
}

// ---- the results

function ranking(run) {
  if (!run.methods.length || !run.metrics.length) return element('div');
  return element(
    'div',
    { class: 'standings' },
    methodTable(several ? `ranking ${run.name}` : 'ranking', run.table, {
      about: 'Sort by the sum of the ranks in soundness and completeness, baseline methods last',
      badges,
    }),
    run.table.columns.some(column => column.kind === 'skill') ? skillNote() : null,
    glossary(run),
  );
}

function badges({ front, baseline }) {
  return [
    ...(isNumber(front)
      ? [element('span', { class: 'badge', title: `On the Pareto front in ${percent(front)} of the resamples` }, 'front')]
      : []),
    ...(baseline ? [element('span', { class: 'badge quiet', title: 'Ignores the model' }, 'baseline')] : []),
  ];
}

function skillNote() {
  const signs = Object.entries(content.directions).flatMap(([direction, [sign, words]]) => [
    element('span', { class: direction }, sign),
    ` ${words}; `,
  ]);
  return element(
    'p',
    { class: 'quiet' },
    'Skill: ',
    ...signs,
    'decided by its interval. Bold: clearly better than all other methods and the baselines, with clear skill.',
  );
}

/** The meaning, range and better direction of each number, folded. */
function glossary(run) {
  const sides = run.table.columns.filter(column => column.kind === 'side');
  const entries = [
    ...run.metrics.map(metric => [metric.heading, metric.meaning.join(' ')]),
    ...run.terms,
    ...sides.map(({ heading, summary }) => [inOneLine(heading), summary.replace(/[.?]?$/, end => end || '.')]),
  ];
  const rows = entries.map(([title, text]) =>
    element('div', {}, element('dt', {}, name(title)), element('dd', {}, name(text))),
  );
  return element(
    'div',
    { class: 'glossary' },
    fold('What these numbers mean, and their scales', element('dl', {}, ...rows)),
  );
}
