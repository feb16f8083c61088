'use strict';

// Samples as rows of a table: columns with their values, attribution as bars.

const COLUMNS_SHOWN = 20;

/** A number with four digits, as people write it. */
function readable(value) {
  if (!isNumber(value)) return '–';
  const text = Number.isInteger(value) && Math.abs(value) < 1e6 ? String(value) : String(Number(value.toPrecision(4)));
  return text.replaceAll('-', '−');
}

/** The first elements of a list, and the others folded. */
function folded(items, list, more) {
  const rest = items.slice(COLUMNS_SHOWN);
  return element(
    'div',
    {},
    list(items.slice(0, COLUMNS_SHOWN)),
    rest.length ? fold(more(rest.length), list(rest)) : null,
  );
}

const moreColumns = count => `${count} more column${count === 1 ? '' : 's'}`;

/** The columns of a sample, without a map. */
function columnList({ names, values, of }) {
  const items = names.map((title, k) =>
    element('div', {}, element('dt', {}, name(title)), element('dd', {}, readable(values[k]))),
  );
  return element(
    'div',
    {},
    folded(items, some => element('dl', { class: 'cells' }, ...some), moreColumns),
    of > names.length
      ? element('p', { class: 'quiet' }, `${names.length} of ${of} columns, those with most attribution.`)
      : null,
  );
}

/** The columns of a sample, those with most attribution first. */
function columnTable({ names, values }, { strength: packed, false: judged, order }) {
  const strength = unpacked(packed);
  const wrong = unpacked(judged);
  const rows = order.map(k => {
    const bar = element('i', { title: `${percent(strength[k] / 250)} of the largest attribution` });
    bar.style.width = `${strength[k] / 2.5}%`;
    return element(
      'tr',
      { 'data-column': k, class: wrong?.[k] ? 'cell false' : 'cell' },
      element('th', { scope: 'row' }, name(names[k])),
      element('td', { class: 'value' }, element('span', {}, readable(values[k])), element('small')),
      element(
        'td',
        { class: 'bar' },
        bar,
        wrong?.[k] ? element('span', { class: 'visually-hidden' }, 'judged false') : null,
      ),
    );
  });
  return folded(rows, some => element('table', { class: 'cells' }, element('tbody', {}, ...some)), moreColumns);
}

const tableView = {
  wide: true,
  key: 'Struck out: removed, with what replaces it.',
  thumb: ({ input: { names, values, top } }) =>
    element('span', { class: 'excerpt' }, name(top.map(k => `${names[k]} ${readable(values[k])}`).join(', '))),
  subject: ({ input }) => columnList(input),
  card: ({ input }, method, view) => columnTable(input, view),
  level: (card, sample, method, { stays, filled }, { k }) => {
    const levels = unpacked(stays);
    for (const row of card.querySelectorAll('tr.cell')) {
      const column = Number(row.dataset.column);
      const gone = levels[column] <= k;
      row.classList.toggle('gone', gone);
      const value = filled?.[column];
      row.querySelector('small').textContent =
        gone && filled ? ` → ${readable(Array.isArray(value) ? value[k] : value)}` : '';
    }
  },
};
