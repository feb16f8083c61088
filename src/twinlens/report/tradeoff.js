'use strict';

// Soundness of what is included against completeness, as features enter in the order of the map.

const ROOM = 340; // pixels for curves; names beside them need more

/** The two curves of a method by the metrics of the trade-off; null where one is missing. */
function bothCurves(run, method) {
  const [sound, complete] = run.tradeoff.metrics.map(metric => method.metrics[metric]);
  const whole = curve => curve?.values.every(isNumber);
  return whole(sound) && whole(complete) ? { sound, complete } : null;
}

function tradeoffMethods(run) {
  return run.methods.filter(method => bothCurves(run, method));
}

function tradeoffRange() {
  const runs = content.runs.filter(run => run.tradeoff);
  return range([
    ...runs.map(run => run.tradeoff.chance),
    ...runs.flatMap(run =>
      tradeoffMethods(run).flatMap(method => {
        const { sound } = bothCurves(run, method);
        return [...sound.values, ...(sound.low ?? []), ...(sound.high ?? [])];
      }),
    ),
  ]);
}

function tradeoffOption(run) {
  const { titles, chance, marks } = run.tradeoff;
  const [across, along] = [{ min: 0, max: 1, interval: 0.2 }, tradeoffRange()];
  return (colours, chart) => {
    const visible = tradeoffMethods(run).filter(method => !hidden.has(method.name));
    const lengths = ['chance', ...visible.map(method => method.name)].map(text => textWidth(text, colours));
    const named = chart.getWidth() - Math.max(...lengths) >= ROOM;
    const grid = { left: 56, right: 16 + (named ? Math.max(...lengths) : lengths[0]), top: 20, bottom: 46 };
    const heights = visible.map(method => bothCurves(run, method).sound.values.at(-1));
    const shifts = spread(isNumber(chance) ? [...heights, chance] : heights, along, chart.getHeight() - grid.top - grid.bottom);
    const middle = method => marks.slice(0, -1).reduce((sum, k) => sum + bothCurves(run, method).sound.values[k], 0);
    const highest = visible.reduce((a, b) => (a && middle(a) >= middle(b) ? a : b), null);
    const ends = [
      [across.min, chance],
      [across.max, chance],
    ];
    const style = { align: 'left', verticalAlign: 'middle' };
    const beside = { at: ends[1], offset: [12, named ? shifts.at(-1) : 0], style };
    return {
      ...frame(colours, `Soundness against completeness as features enter, for ${visible.length} methods.`),
      grid,
      tooltip: {
        ...tooltip(colours),
        trigger: 'axis',
        axisPointer: { type: 'line', lineStyle: { color: colours.quiet } },
        formatter: items => tradeoffHover(run, visible, items[0].axisValue),
      },
      xAxis: axis(titles[1], across, colours),
      yAxis: axis(`${titles[0]} of what is included`, along, colours, { nameGap: 40 }),
      series: [
        ...(isNumber(chance) ? [chanceLine(ends, colours, beside)] : []),
        ...visible.flatMap((method, k) =>
          tradeoffMarks(run, method, { name: named, shift: shifts[k], shares: method === highest }, colours),
        ),
        everywhere(across, along),
      ],
    };
  };
}

/** By how many pixels labels at these heights move up or down to keep off each other. */
function spread(heights, { min, max }, length) {
  const ends = heights.map((height, k) => ({ k, y: (length * (max - height)) / (max - min) }));
  ends.sort((a, b) => a.y - b.y);
  const free = ends.map(({ y }, place) => y - 15 * place);
  const shifts = [];
  ends.forEach(({ k, y }, place) => {
    const [lower, upper] = [Math.max(...free.slice(0, place + 1)), Math.min(...free.slice(place))];
    shifts[k] = (lower + upper) / 2 + 15 * place - y;
  });
  return shifts;
}

/** The curve of a method: symbols at the marked shares, a large one and perhaps its name at the end, and its band. */
function tradeoffMarks(run, method, { name: named, shift, shares }, colours) {
  const { colour, symbol } = styleOf(method.name);
  const { sound, complete } = bothCurves(run, method);
  const text = { fontFamily: colours.font, textBorderColor: colours.paper, textBorderWidth: 2 };
  const last = run.tradeoff.marks.at(-1);
  const end = { show: named, position: 'right', offset: [0, shift], color: colour, fontSize: 12, ...text };
  const share = { show: shares, position: 'top', color: colours.quiet, fontSize: 11, ...text };
  const points = column =>
    sound[column].map((value, k) => ({
      value: [complete.values[k], value],
      symbol: run.tradeoff.marks.includes(k) ? `path://${symbol}` : 'none',
      symbolSize: k === last ? 11 : 7,
      label:
        k === last
          ? { ...end, formatter: () => method.name }
          : { ...share, formatter: () => (run.tradeoff.marks.includes(k) ? percent(sound.levels[k]) : '') },
    }));
  const curve = { values: points('values'), low: sound.low, high: sound.high };
  const coordinates = (own, column) =>
    column === 'values' ? own.values : own[column].map((value, k) => [complete.values[k], value]);
  return curveMarks({ name: method.name, metrics: { both: curve } }, { key: 'both' }, coordinates);
}

/** For each method, soundness where its completeness reaches a value, and the share of features that takes. */
function tradeoffHover(run, visible, at) {
  const rows = visible.map(method => {
    const { sound, complete } = bothCurves(run, method);
    const k = complete.values.findIndex(value => value >= at - 1e-9);
    return k < 0
      ? [method.name, 'not reached', null]
      : [method.name, decimal(sound.values[k]), `${percent(sound.levels[k])} of the features`];
  });
  const [sound, complete] = run.tradeoff.titles;
  return hoverTable(`${sound} at ${complete} ${decimal(at, 2)}`, rows);
}

/** The same numbers at the marked shares of features. */
function tradeoffTable(run) {
  const { titles, marks } = run.tradeoff;
  const methods = tradeoffMethods(run);
  const columns = [0, 1].flatMap(side =>
    marks
      .filter((_, k) => side === 0 || k < marks.length - 1) // the completeness of a whole map is 1
      .map(k => {
        const share = percent(bothCurves(run, methods[0]).sound.levels[k]);
        const heading = `${titles[side]} at ${share.replace(' ', '\u00a0')}`;
        return { key: heading, heading, kind: 'side', descending: true, side, k };
      }),
  );
  const rows = methods.map(method => {
    const { sound, complete } = bothCurves(run, method);
    const cells = columns.map(({ side, k }) => {
      const { values, low, high } = [sound, complete][side];
      return { estimate: { value: values[k], low: low?.[k], high: high?.[k] } };
    });
    return { method: method.name, baseline: content.styles[method.name].baseline, cells };
  });
  return methodTable(several ? `trade-off ${run.name}` : 'trade-off', { columns, rows });
}

function tradeoffSection() {
  if (!content.runs.some(run => run.tradeoff)) return null;
  const panel = run => {
    const caption = several ? name(run.name) : '';
    if (!run.tradeoff) {
      return element(
        'figure',
        {},
        element('p', { class: 'empty' }, 'This run did not measure both over the same steps.'),
        element('figcaption', {}, caption),
      );
    }
    return element(
      'div',
      {},
      chartFigure('tradeoff', tradeoffOption(run), { caption }),
      fold('As a table', tradeoffTable(run)),
      fold('How to read it', element('p', { class: 'quiet' }, tradeoffReading(run))),
    );
  };
  return element(
    'section',
    { class: 'metric', id: 'tradeoff' },
    heading('h3', 'tradeoff', 'Soundness against completeness'),
    element(
      'p',
      { class: 'quiet' },
      'As features enter in the order of the map; up and to the right is better, as for precision and recall.',
    ),
    element('div', { class: several ? 'grid' : '' }, ...content.runs.map(panel)),
  );
}

function tradeoffReading({ tradeoff, methods }) {
  const [first] = methods.map(method => method.metrics[tradeoff.metrics[0]]).filter(Boolean);
  const shares = tradeoff.marks.slice(0, -1).map(k => percent(first.levels[k]));
  return [
    `Symbols mark ${shares.join(', ')} of the features; the large one at the end is the whole map.`,
    'Bands are intervals of soundness.',
    isNumber(tradeoff.chance)
      ? 'The dotted line is the soundness of whole maps that are unrelated to the model. It does not hold for their ' +
        'first features: compare these with a random map.'
      : '',
  ].join(' ');
}
