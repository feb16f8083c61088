'use strict';

// Soundness of what is included against completeness, as features enter in the order of the map.

const ROOM = 340; // pixels for curves; names beside them need more
const LINE = 15; // pixels from one name to the next

/** The two curves of a method by the metrics of the trade-off; null where one is missing. */
function bothCurves(run, method) {
  const [sound, complete] = run.plane.metrics.map(metric => method.metrics[metric]);
  const whole = curve => curve?.values.every(isNumber);
  return whole(sound) && whole(complete) ? { sound, complete } : null;
}

function tradeoffMethods(run) {
  return run.methods.filter(method => bothCurves(run, method));
}

function tradeoffRange() {
  const runs = content.runs.filter(run => run.tradeoff);
  return range([
    ...runs.map(run => run.plane.chance[0]),
    ...runs.flatMap(run =>
      tradeoffMethods(run).flatMap(method => {
        const { sound } = bothCurves(run, method);
        return [...sound.values, ...(sound.low ?? []), ...(sound.high ?? [])];
      }),
    ),
  ]);
}

function tradeoffOption(run) {
  const { titles, chance: [chance] } = run.plane;
  const { marks } = run.tradeoff;
  const [across, along] = [{ min: 0, max: 1, interval: 0.2 }, tradeoffRange()];
  return (colours, chart) => {
    const visible = tradeoffMethods(run).filter(method => !hidden.has(method.name));
    const lengths = ['chance', ...visible.map(method => method.name)].map(text => textWidth(text, colours));
    const crowded = lengths.length * LINE > chart.getHeight() - 66;
    const named = chart.getWidth() - Math.max(...lengths) >= ROOM && !crowded;
    const grid = { left: 56, right: 18 + (named ? Math.max(...lengths) : lengths[0]), top: 20, bottom: 46 };
    const heights = visible.map(method => bothCurves(run, method).sound.values.at(-1));
    const shifts = spread(isNumber(chance) ? [...heights, chance] : heights, along, chart.getHeight() - grid.top - grid.bottom);
    const middle = method => marks.slice(0, -1).reduce((sum, k) => sum + bothCurves(run, method).sound.values[k], 0);
    const highest = visible.reduce((a, b) => (a && middle(a) >= middle(b) ? a : b), null);
    const labels = [
      ...visible.map((method, k) => [method.name, heights[k], styleOf(method.name).colour]),
      ...(isNumber(chance) ? [['chance', chance, null]] : []),
    ];
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
        ...(isNumber(chance) ? chanceCross([null, chance], [across, along], null, colours) : []),
        ...visible.flatMap(method => tradeoffMarks(run, method, method === highest, colours)),
        ...labels.flatMap(([text, height, colour], k) =>
          named || !colour ? [endLabel(text, [1, height], named ? shifts[k] : 0, colour, colours)] : [],
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
  const free = ends.map(({ y }, place) => y - LINE * place);
  const shifts = [];
  ends.forEach(({ k, y }, place) => {
    const [lower, upper] = [Math.max(...free.slice(0, place + 1)), Math.min(...free.slice(place))];
    shifts[k] = (lower + upper) / 2 + LINE * place - y;
  });
  return shifts;
}

/** A text to the right of a point, with a line to it in the colour of a method, or quiet without one. */
function endLabel(text, at, shift, colour, colours) {
  const style = { text, fill: colour ? colours.text : colours.quiet, fontFamily: colours.font, fontSize: 12 };
  return {
    type: 'custom',
    silent: true,
    tooltip: { show: false },
    data: [at],
    clip: false,
    encode: { x: 0, y: 1 },
    renderItem: (_, api) => {
      const [x, y] = api.coord(at);
      const line = { points: [[x + 7, y], [x + 14, y + shift]] };
      return {
        type: 'group',
        children: [
          ...(colour ? [{ type: 'polyline', shape: line, style: { stroke: colour, lineWidth: 1.5, fill: 'none' } }] : []),
          { type: 'text', style: { ...style, x: x + 17, y: y + shift, align: 'left', verticalAlign: 'middle' } },
        ],
      };
    },
  };
}

/** The curve of a method with its band: symbols at the marked shares of features, and a large one at the end. */
function tradeoffMarks(run, method, shares, colours) {
  const { sound, complete } = bothCurves(run, method);
  const { marks } = run.tradeoff;
  const points = sound.values.map((value, k) => ({
    value: [complete.values[k], value],
    symbol: marks.includes(k) ? `path://${styleOf(method.name).symbol}` : 'none',
    symbolSize: k === marks.at(-1) ? 11 : 7,
    label: {
      show: shares && marks.slice(0, -1).includes(k),
      formatter: () => percent(sound.levels[k]),
      position: 'top',
      color: colours.quiet,
      fontFamily: colours.font,
      fontSize: 11,
    },
  }));
  const coordinates = (curve, column) =>
    column === 'values' ? points : curve[column].map((value, k) => [complete.values[k], value]);
  return curveMarks({ name: method.name, metrics: { both: sound } }, { key: 'both' }, coordinates);
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
  const [sound, complete] = run.plane.titles;
  return hoverTable(`${sound} at ${complete} ${decimal(at, 2)}`, rows);
}

/** The same numbers at the marked shares of features. */
function tradeoffTable(run) {
  const { titles } = run.plane;
  const { marks } = run.tradeoff;
  const methods = tradeoffMethods(run);
  const columns = [0, 1].flatMap(side =>
    marks
      .filter((_, k) => side === 0 || k < marks.length - 1) // the completeness of a whole map is 1
      .map(k => {
        const share = percent(bothCurves(run, methods[0]).sound.levels[k]);
        const heading = `${titles[side]} at ${share}`;
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
      chartFigure('tradeoff', tradeoffOption(run), { caption: chartCaption(run, planeSettings(run.plane)) }),
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

function tradeoffReading(run) {
  const { sound: first } = bothCurves(run, tradeoffMethods(run)[0]);
  const shares = run.tradeoff.marks.slice(0, -1).map(k => percent(first.levels[k]));
  return [
    `Symbols mark ${shares.join(', ')} of the features; the large one at the end is the whole map.`,
    'Bands are intervals of soundness.',
    isNumber(run.plane.chance[0])
      ? 'The dotted line is the soundness of a whole random map. The first features of a random map may score less or ' +
        'more: compare those of a method with the baseline random.'
      : '',
  ].join(' ');
}
