'use strict';

// The charts. Each is a function from the visible methods to an ECharts option; all are redrawn on every change.

const charts = [];
const fits = [];

/** A chart with its caption and downloads; `ready` gets a function that redraws it. */
function chartFigure(kind, option, { caption = null, ready = () => {} } = {}) {
  const container = element('div', { class: 'chart', 'data-chart': kind });
  requestAnimationFrame(() => ready(drawChart(container, option)));
  return element('figure', {}, container, element('figcaption', {}, chartDownloads(container), caption));
}

/** Draws a chart in a container, once it is seen, and redraws it when methods, colours or width change. */
function drawChart(container, option) {
  let chart = null;
  const draw = () => chart?.setOption(option(theme(), chart), { notMerge: true });
  const fit = () => {
    // It is folded, or the samples of another run are shown.
    if (!container.clientWidth || container.closest('details:not([open])')) return;
    if (!chart) charts.push((chart = echarts.init(container, null, { renderer: 'svg' })));
    chart.resize();
    draw();
  };
  fit();
  onMethods(draw);
  new ResizeObserver(fit).observe(container);
  fits.push(fit);
  return draw;
}

let unfolded = [];

function setPrinting(printing) {
  document.documentElement.toggleAttribute('data-print', printing);
  if (printing) unfolded = [...document.querySelectorAll('details:not([open], .verdicts *, .more-metrics)')];
  for (const folded of unfolded) folded.open = printing;
  for (const table of document.querySelectorAll('.scroll > table')) {
    table.style.zoom = '';
    if (printing) table.style.zoom = Math.min(1, table.parentNode.clientWidth / table.scrollWidth);
  }
  for (const fit of fits) fit();
}

addEventListener('beforeprint', () => setPrinting(true));
addEventListener('afterprint', () => setPrinting(false));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => setHidden(() => {}));

/** A range around values that ends at tick marks. */
function range(values, { floor, ceiling } = {}) {
  const numbers = [...values, floor, ceiling].filter(isNumber);
  if (!numbers.length) return { min: 0, max: 1, interval: 0.2 };
  const high = Math.max(...numbers);
  let low = Math.min(...numbers);
  // A loss that is slightly negative by chance is drawn over the edge instead of stretching the axis.
  if (floor !== undefined && low > floor - 0.05) low = floor;
  const interval =
    [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100].find(step => (high - low) / step <= 6) ?? (high - low) / 5;
  const tidy = value => Number(value.toFixed(6));
  const [min, max] = [Math.floor(low / interval + 1e-9), Math.ceil(high / interval - 1e-9)];
  return { min: tidy(min * interval), max: tidy(Math.max(max, min + 1) * interval), interval };
}

function axis(title, ends, colours, more = {}) {
  const text = { color: colours.quiet, fontFamily: colours.font, fontSize: 12 };
  return {
    type: 'value',
    name: title,
    nameLocation: 'middle',
    nameGap: 30,
    nameTextStyle: text,
    ...ends,
    axisLabel: { ...text, formatter: value => String(Number(value.toFixed(4))).replace('-', '−') },
    axisLine: { show: true, onZero: false, lineStyle: { color: colours.line } },
    axisTick: { show: false },
    splitLine: { lineStyle: { color: colours.line, opacity: 0.5 } },
    ...more,
  };
}

function tooltip(colours) {
  return {
    confine: true,
    backgroundColor: colours.card,
    borderColor: colours.line,
    padding: [8, 12],
    textStyle: { color: colours.text, fontFamily: colours.font, fontSize: 13, fontWeight: 'normal' },
    extraCssText: 'box-shadow: 0 2px 12px rgb(0 0 0 / 15%);',
  };
}

function frame(colours, description) {
  return {
    animation: false,
    aria: { enabled: true, label: { description } },
    grid: { left: 52, right: 18, top: 14, bottom: 46 },
    tooltip: tooltip(colours),
  };
}

/** The rows of a tooltip: a heading, then one line per method. */
function hoverTable(title, rows) {
  const lines = rows.map(([method, value, between]) =>
    element(
      'tr',
      {},
      element('td', {}, swatch(method), name(method)),
      element('td', { class: 'number' }, value),
      element('td', { class: 'quiet' }, between ?? ''),
    ),
  );
  return element('div', { class: 'hover' }, element('strong', {}, title), element('table', {}, ...lines));
}

/** A shape between data points that no series type has: bands and crosses. */
function shape(coordinates, style, closed) {
  return {
    type: 'custom',
    silent: true,
    tooltip: { show: false },
    data: [[0, 0]],
    clip: true,
    z: 1,
    encode: { x: [], y: [] },
    renderItem: (_, api) => ({
      type: closed ? 'polygon' : 'polyline',
      silent: true,
      style,
      shape: { points: coordinates.map(point => api.coord(point)) },
    }),
  };
}

// ---- the plane

const PLANE_GRID = { left: 56, right: 24, top: 20, bottom: 50 };

function planeRange(side) {
  const planes = content.runs.map(run => run.plane).filter(Boolean);
  return range([
    ...planes.map(plane => plane.chance[side]),
    ...planes.flatMap(({ points }) =>
      points.flatMap(({ sides }) => {
        const { area, control } = sides[side];
        return [area.value, area.low, area.high, control?.value];
      }),
    ),
  ]);
}

/** What both sides depend on: epsilon, levels or steps. */
function planeSettings({ titles, settings }) {
  const [first, second] = settings;
  return first === second ? `Both with ${first}` : titles.map((title, k) => `${title}: ${settings[k]}`).join('; ');
}

const planeAt = point => point.sides.map(({ area }) => area.value);

/** The areas of a method's exchanged maps; null where one of them is unknown. */
function exchangedAt(point) {
  const values = point.sides.map(({ control }) => control?.value);
  return values.every(isNumber) ? values : null;
}

function planeOption(plane) {
  const ranges = [0, 1].map(planeRange);
  const [across, along] = plane.titles;
  return (colours, chart) => {
    const visible = plane.points.filter(point => !hidden.has(point.method));
    const places = placeLabels(visible, plane, ranges, chart);
    return {
      ...frame(colours, `Soundness and completeness of ${plane.points.length} methods; the table has the same numbers.`),
      grid: PLANE_GRID,
      tooltip: { ...tooltip(colours), trigger: 'item', formatter: item => planeHover(plane, item.seriesName) },
      xAxis: axis(`${across} →`, ranges[0], colours, { nameGap: 32 }),
      yAxis: axis(`${along} →`, ranges[1], colours, { nameGap: 40 }),
      series: [
        ...chanceCross(plane.chance, ranges, places.get(CHANCE), colours),
        frontLine(plane, ranges, colours),
        ...visible.flatMap(point => planeMarks(point, places.get(point.method), colours)),
      ],
    };
  };
}

const CHANCE = Symbol('chance'); // among the names of methods, any of which may be "chance"

/** A dotted line, with an optional label beside a point. */
function chanceLine(line, colours, label = null) {
  const style = { stroke: colours.quiet, lineWidth: 1, lineDash: [1, 3], fill: 'none' };
  return {
    type: 'custom',
    id: `chance ${line.join(' ')}`,
    silent: true,
    tooltip: { show: false },
    data: [line[0]],
    z: 1,
    encode: { x: 0, y: 1 },
    renderItem: (_, api) => {
      const children = [{ type: 'polyline', shape: { points: line.map(point => api.coord(point)) }, style }];
      if (label) {
        const [x, y] = api.coord(label.at);
        const text = { text: 'chance', fill: colours.quiet, fontFamily: colours.font, fontSize: 12 };
        children.push({ type: 'text', style: { ...text, ...label.style, x: x + label.offset[0], y: y + label.offset[1] } });
      }
      return { type: 'group', children };
    },
  };
}

/** Lines at what chance alone gives, on the axes whose metric has such a level. */
function chanceCross([across, along], [x, y], place, colours) {
  const up = isNumber(across) ? [[across, y.min], [across, y.max]] : null;
  const aside = isNumber(along) ? [[x.min, along], [x.max, along]] : null;
  const lines = [up, aside].filter(Boolean);
  const label = place ? { at: [across ?? x.max, along ?? y.max], ...place } : null;
  return lines.map((line, k) => chanceLine(line, colours, k ? null : label));
}

/** The corners of the Pareto front, from the left edge to the bottom. */
function frontCorners(plane, ranges) {
  const points = plane.points.filter(point => point.front).map(planeAt);
  points.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  const corners = [];
  points.forEach((point, k) => {
    corners.push(k ? [points[k - 1][0], point[1]] : [ranges[0].min, point[1]], point);
  });
  if (points.length) corners.push([points[points.length - 1][0], ranges[1].min]);
  return corners;
}

function frontLine(plane, ranges, colours) {
  return {
    type: 'line',
    name: 'front',
    data: frontCorners(plane, ranges),
    symbol: 'none',
    silent: true,
    tooltip: { show: false },
    z: 1,
    lineStyle: { color: colours.quiet, width: 1, type: [4, 4] },
    areaStyle: { color: colours.quiet, opacity: 0.05, origin: 'start' },
  };
}

/** Both ends of the interval of each area that has one. */
function planeBars(point) {
  const [x, y] = planeAt(point);
  const [across, along] = point.sides.map(({ area }) => (isNumber(area.low) ? [area.low, area.high] : []));
  return [across.map(end => [end, y]), along.map(end => [x, end])].filter(bar => bar.length);
}

function planeMarks(point, place, colours) {
  const { colour, symbol } = styleOf(point.method);
  const [x, y] = planeAt(point);
  const from = exchangedAt(point);
  return [
    ...planeBars(point).map(bar => shape(bar, { stroke: colour, lineWidth: 1.5, opacity: 0.55, fill: 'none' }, false)),
    ...(from ? [planeArrow(point.method, from, [x, y], colour, colours)] : []),
    {
      type: 'scatter',
      name: point.method,
      data: [[x, y]],
      symbol: `path://${symbol}`,
      symbolSize: point.front ? 15 : 12,
      z: 3,
      itemStyle: planeFill(point.sides, colour, colours),
      label: {
        show: Boolean(place),
        formatter: () => point.method,
        ...place?.label,
        color: point.baseline ? colours.quiet : blend(colour, colours.text),
        fontSize: 12,
        fontFamily: colours.font,
        fontWeight: point.front ? 'bold' : 'normal',
        textBorderColor: colours.paper,
        textBorderWidth: 3,
      },
    },
    ...(place?.far ? [leader(point.method, [x, y], place, colour)] : []),
  ];
}

/** A colour as text can have it: closer to that of the text. */
function blend(colour, text) {
  const parts = hex => [1, 3, 5].map(k => parseInt(hex.slice(k, k + 2), 16));
  const [own, other] = [parts(colour), parts(text.length === 7 ? text : '#000000')];
  return `rgb(${own.map((part, k) => Math.round(0.6 * part + 0.4 * other[k])).join(' ')})`;
}

/** A thin line from a point to its name, which is not beside it. */
function leader(method, at, { offset }, colour) {
  return {
    type: 'custom',
    id: `leader ${method}`,
    silent: true,
    tooltip: { show: false },
    data: [at],
    z: 2,
    encode: { x: 0, y: 1 },
    renderItem: (_, api) => {
      const [x, y] = api.coord(at);
      const style = { stroke: colour, lineWidth: 0.8, opacity: 0.7, fill: 'none' };
      return { type: 'polyline', shape: { points: [[x, y], [x + offset[0], y + offset[1]]] }, style };
    },
  };
}

/** How a symbol is filled: empty on the right without skill in soundness, at the top without skill in completeness. */
function planeFill(sides, colour, colours) {
  const [sound, complete] = sides.map(({ direction }) => (direction ?? 'better') === 'better');
  if (sound && complete) return { color: colour, borderColor: colours.card, borderWidth: 1.5, opacity: 1 };
  const empty = { borderColor: colour, borderWidth: 1.5, opacity: 1 };
  if (!sound && !complete) return { ...empty, color: colours.card };
  const halves = [colour, colour, colours.card, colours.card];
  const colorStops = [0, 0.5, 0.5, 1].map((offset, k) => ({ offset, color: halves[k] }));
  const direction = sound ? { x: 0, y: 1, x2: 0, y2: 0 } : { x: 0, y: 0, x2: 1, y2: 0 };
  return { ...empty, color: { type: 'linear', ...direction, colorStops } };
}

/** An arrow to a method's point, from a small hollow point for its exchanged maps. */
function planeArrow(method, from, to, colour, colours) {
  return {
    type: 'custom',
    id: `exchanged ${method}`,
    silent: true,
    tooltip: { show: false },
    data: [from],
    clip: false,
    z: 2,
    encode: { x: 0, y: 1 },
    renderItem: (_, api) => {
      const [[x1, y1], [x2, y2]] = [api.coord(from), api.coord(to)];
      const length = Math.hypot(x2 - x1, y2 - y1);
      const [dx, dy] = length ? [(x2 - x1) / length, (y2 - y1) / length] : [0, 0];
      const at = (distance, aside = 0) => [x1 + distance * dx - aside * dy, y1 + distance * dy + aside * dx];
      const tip = length - 9; // at the edge of the symbol
      const circle = {
        type: 'circle',
        shape: { cx: x1, cy: y1, r: 3.5 },
        style: { stroke: colour, fill: colours.paper, lineWidth: 1.5 },
      };
      if (tip < 12) return { type: 'group', children: [circle] };
      const line = { stroke: colour, lineWidth: 1.5 };
      const head = { points: [at(tip), at(tip - 8, 3.5), at(tip - 8, -3.5)] };
      return {
        type: 'group',
        children: [
          { type: 'polyline', shape: { points: [at(3.5), at(tip - 6)] }, style: { ...line, fill: 'none' } },
          { type: 'polygon', shape: head, style: { fill: colour } },
          circle,
        ],
      };
    },
  };
}

/** A line between two points, and how bad it is if a name covers it. */
const obstacle = (from, to, cost) => ({ from, to, cost });

/** Whether a line passes through a box (left, top, right, bottom). */
function passes({ from, to }, box) {
  let [enter, leave] = [0, 1];
  for (const axis of [0, 1]) {
    const [way, low, high] = [to[axis] - from[axis], box[axis] - from[axis], box[axis + 2] - from[axis]];
    if (way === 0) {
      if (low >= 0 || high <= 0) return false;
      continue;
    }
    enter = Math.max(enter, Math.min(low / way, high / way));
    leave = Math.min(leave, Math.max(low / way, high / way));
  }
  return enter < leave;
}

const covers = (a, b) => a[0] < b[2] && a[2] > b[0] && a[1] < b[3] && a[3] > b[1];

function distance([left, top, right, bottom], { x, y }) {
  return Math.hypot(Math.max(left - x, 0, x - right), Math.max(top - y, 0, y - bottom));
}

/** Finds a place beside each point where its name covers nothing else; names without room are left out. */
function placeLabels(visible, plane, ranges, chart) {
  const { chance } = plane;
  const width = chart.getWidth() - PLANE_GRID.left - PLANE_GRID.right;
  const height = chart.getHeight() - PLANE_GRID.top - PLANE_GRID.bottom;
  const pixel = (value, { min, max }, length) => (length * (value - min)) / (max - min);
  const onScreen = ([x, y]) => [pixel(x, ranges[0], width), height - pixel(y, ranges[1], height)];
  const around = ([x, y], reach) => [x - reach, y - reach, x + reach, y + reach];
  const taken = [];
  const lines = [];
  const points = visible.map(point => {
    const own = planeAt(point);
    const at = onScreen(own);
    taken.push(around(at, 8));
    const from = exchangedAt(point);
    if (from) {
      taken.push(around(onScreen(from), 5));
      lines.push(obstacle(onScreen(from), at, 2));
    }
    for (const bar of planeBars(point)) lines.push(obstacle(onScreen(bar[0]), onScreen(bar[1]), 0.7));
    return { method: point.method, front: point.front, x: at[0], y: at[1] };
  });
  points.sort((a, b) => b.front - a.front);
  const corners = frontCorners(plane, ranges).map(onScreen);
  corners.slice(1).forEach((corner, k) => lines.push(obstacle(corners[k], corner, 0.7)));
  if (chance.some(isNumber)) {
    const [x, y] = onScreen([chance[0] ?? ranges[0].max, chance[1] ?? ranges[1].max]);
    if (isNumber(chance[0])) lines.push(obstacle([x, 0], [x, height], 0.7));
    if (isNumber(chance[1])) lines.push(obstacle([0, y], [width, y], 0.7));
    points.push({ method: CHANCE, x, y });
  }
  const frame = [-4, -18, width + 20, height];
  const possible = points.map(point => {
    const { method, front, x, y } = point;
    const length = textWidth(method === CHANCE ? 'chance' : method, theme(), front ? 'bold' : 'normal');
    const free = labelSides(x, y, length).filter(
      ({ box }) =>
        box[0] > frame[0] && box[1] > frame[1] && box[2] < frame[2] && box[3] < frame[3] && !taken.some(each => covers(box, each)),
    );
    for (const place of free) {
      place.cost += lines.reduce((sum, line) => sum + (passes(line, place.box) ? line.cost : 0), 0);
      const own = distance(place.box, point);
      if (points.some(other => other !== point && distance(place.box, other) < own)) place.cost += 6;
    }
    return free.sort((a, b) => a.cost - b.cost);
  });
  const chosen = bestChoice(
    possible,
    points.map(({ front }) => (front ? 150 : 50)),
  );
  return new Map(points.flatMap(({ method }, k) => (chosen[k] ? [[method, chosen[k]]] : [])));
}

/** Lets labels take their best free places in several orders, and keeps the best choice; `missing` is the cost of none. */
function bestChoice(possible, missing) {
  let best = null;
  const order = possible.map((_, k) => k);
  let seed = 1;
  for (let trial = 0; trial < 60; trial++) {
    const chosen = [];
    let cost = 0;
    for (const k of order) {
      chosen[k] = possible[k].find(({ box }) => !chosen.some(other => other && covers(box, other.box))) ?? null;
      cost += chosen[k]?.cost ?? missing[k];
    }
    if (!best || cost < best.cost) best = { chosen, cost };
    for (let k = order.length - 1; k > 0; k--) {
      seed = (seed * 48271) % 2147483647; // the same orders each time
      const other = seed % (k + 1);
      [order[k], order[other]] = [order[other], order[k]];
    }
  }
  return best.chosen;
}

const measuring = document.createElement('canvas').getContext('2d');

/** The width of a text on one line, in pixels. */
function textWidth(text, { font }, weight = 'normal') {
  measuring.font = `${weight} 12px ${font}`;
  return measuring.measureText(text).width + 6;
}

const BESIDE = [
  ['center', 'top'],
  ['center', 'bottom'],
  ['left', 'right'],
  ['right', 'left'],
  ...['top', 'bottom'].flatMap(position => ['left', 'right'].map(align => [align, position])),
];
const LABEL_SIDES = [0, 9, 20, 34, 50].flatMap(away => BESIDE.map(([align, position], rank) => ({ align, position, away, rank })));

/** Where a text beside a point may be: how it is aligned, its box, and what makes it less good. */
function labelSides(x, y, length) {
  return LABEL_SIDES.map(({ align, position, away, rank }) => {
    const beside = position === 'left' || position === 'right';
    const gap = beside ? 12 + away : 0;
    const left = { center: x - length / 2, left: x + gap, right: x - gap - length }[align];
    const top = { top: y - 26 - away, bottom: y + 11 + away }[position] ?? y - 8;
    return {
      label: { position, distance: 6 + away, ...(beside ? {} : { align }) },
      box: [left, top, left + length, top + (beside ? 16 : 15)],
      style: { align, verticalAlign: { top: 'bottom', bottom: 'top' }[position] ?? 'middle' },
      offset: [{ center: 0, left: gap || 4, right: -(gap || 4) }[align], { top: -6 - away, bottom: 6 + away }[position] ?? 0],
      far: away > 9,
      cost: 0.12 * away + 0.1 * rank,
    };
  });
}

function planeHover(plane, chosen) {
  const { sides, front, baseline } = plane.points.find(point => point.method === chosen);
  const cell = (value, between, kind) =>
    element('td', { class: `number ${kind ?? ''}`.trim() }, value, element('small', {}, between ?? ''));
  const judged = sides.some(({ skill }) => skill);
  const heads = ['', 'own', ...(judged ? ['exchanged', 'skill'] : [])];
  const rows = sides.map(({ area, control, skill, direction }, side) => {
    const text = `${judgement(direction).sign} ${signed(skill?.value)}`.trim();
    return element(
      'tr',
      {},
      element('td', {}, name(plane.titles[side])),
      cell(decimal(area.value), interval(area)),
      ...(judged ? [cell(decimal(control?.value)), cell(text, interval(skill, signed), direction)] : []),
    );
  });
  const notes = [
    baseline ? 'a baseline method, which ignores the model' : null,
    front ? 'on the Pareto front' : null,
    ...sides.map(({ direction }, side) =>
      (direction ?? 'better') === 'better' ? null : `${plane.titles[side]}: ${judgement(direction).words}`,
    ),
  ].filter(Boolean);
  return element(
    'div',
    { class: 'hover' },
    element('strong', {}, name(chosen)),
    element(
      'table',
      {},
      element('tr', {}, ...heads.map(head => element('td', { class: 'number quiet' }, head))),
      ...rows,
    ),
    ...notes.map(note => element('div', { class: 'quiet' }, name(note))),
  );
}

// ---- the curves

/** The levels at which performance is higher than at all levels before. */
function records(curve) {
  let best = -Infinity;
  return curve.performance
    .map((performance, k) => ({ performance, k }))
    .filter(({ performance }) => {
      const higher = performance > best;
      if (higher) best = performance;
      return higher;
    });
}

/** Coordinates of a staircase: between two records the value is that of the level that reaches v. */
function stairs(curve, column) {
  const low = Math.min(0, curve.performance[0]);
  return records(curve).flatMap(({ performance, k }, place, all) => {
    const from = place ? all[place - 1].performance : low;
    return [
      [from, curve[column][k]],
      [performance, curve[column][k]],
    ];
  });
}

function levels(curve, column) {
  return curve.levels.map((level, k) => [level, curve[column][k]]);
}

function curveRange(metric, column) {
  const curves = content.runs
    .flatMap(run => run.methods)
    .map(method => method.metrics[metric])
    .filter(Boolean);
  const values = curves.flatMap(curve =>
    column === 'values' ? [...curve.values, ...(curve.low ?? []), ...(curve.high ?? [])] : curve[column],
  );
  return range(values, { floor: 0, ceiling: 1 });
}

function curveOption(run, metric) {
  const coordinates = metric.stairs ? stairs : levels;
  const [across, along] = [
    metric.stairs ? curveRange(metric.key, 'performance') : { min: 0, max: 1, interval: 0.2 },
    curveRange(metric.key, 'values'),
  ];
  return colours => {
    const visible = run.methods.filter(method => !hidden.has(method.name) && method.metrics[metric.key]);
    return {
      ...frame(colours, `${metric.title}: ${metric.summary}, for ${visible.length} methods.`),
      tooltip: {
        ...tooltip(colours),
        trigger: 'axis',
        axisPointer: { type: 'line', lineStyle: { color: colours.quiet } },
        formatter: items => curveHover(visible, metric, items[0].axisValue),
      },
      xAxis: axis(metric.x, across, colours, { inverse: metric.decreasing }),
      yAxis: axis(metric.y, along, colours, { nameGap: 36 }),
      series: [
        ...visible.flatMap(method => curveMarks(method, metric, coordinates)),
        ...(metric.stairs ? [everywhere(across, along)] : []),
      ],
    };
  };
}

/** Invisible points: the pointer snaps to points, and soundness at v is defined between those of the stairs. */
function everywhere({ min, max }, along) {
  const data = Array.from({ length: 201 }, (_, k) => [min + (k * (max - min)) / 200, along.min]);
  return { type: 'line', data, symbol: 'none', silent: true, lineStyle: { opacity: 0 } };
}

function curveMarks(method, metric, coordinates) {
  const { colour, dash, symbol } = styleOf(method.name);
  const curve = method.metrics[metric.key];
  const line = {
    type: 'line',
    name: method.name,
    data: coordinates(curve, 'values'),
    symbol: `path://${symbol}`,
    z: 2,
    showSymbol: !metric.stairs,
    symbolSize: 6,
    connectNulls: false,
    clip: false,
    itemStyle: { color: colour },
    lineStyle: { color: colour, width: 2, type: dash },
    emphasis: { disabled: true },
  };
  if (!curve.low || !curve.high) return [line];
  const outline = [...coordinates(curve, 'low'), ...coordinates(curve, 'high').reverse()];
  const band = shape(
    outline.filter(point => isNumber(point[1])),
    { fill: colour, opacity: 0.1 },
    true,
  );
  return [band, line];
}

/** The value of each method at a position of the horizontal axis. */
function curveHover(visible, metric, at) {
  const rows = visible.map(method => {
    const curve = method.metrics[metric.key];
    const k = metric.stairs
      ? curve.performance.findIndex(value => value >= at)
      : curve.levels.findIndex(level => Math.abs(level - at) < 1e-9);
    const value = k < 0 ? 'not reached' : isNumber(curve.values[k]) ? decimal(curve.values[k]) : 'undefined';
    return [method.name, value, k < 0 || !curve.low ? null : interval({ low: curve.low[k], high: curve.high[k] })];
  });
  return hoverTable(`${metric.x.split(':')[0]} ${decimal(at, 2)}`, rows);
}

// ---- the steps of a check

function stepsOption(check) {
  const alike = content.runs.flatMap(run => run.checks ?? []).filter(other => other.name === check.name);
  const courses = alike.flatMap(other => other.methods.flatMap(method => method.course));
  const along = range(
    courses.flatMap(step => [step.value, step.low, step.high]),
    { floor: 0 },
  );
  return colours => {
    const visible = check.methods.filter(method => !hidden.has(method.name));
    const steps = {
      type: 'category',
      data: check.steps,
      boundaryGap: false,
      axisLabel: { color: colours.quiet, fontFamily: colours.font, fontSize: 12, hideOverlap: true },
    };
    return {
      ...frame(colours, `${check.title}, step by step, for each ${check.rows}.`),
      tooltip: {
        ...tooltip(colours),
        trigger: 'axis',
        axisPointer: { type: 'line', lineStyle: { color: colours.quiet } },
        formatter: items => stepsHover(check, visible, items[0].dataIndex),
      },
      xAxis: axis(check.stepTitle, {}, colours, steps),
      yAxis: axis(check.courseTitle, along, colours, { nameGap: 36 }),
      series: visible.flatMap(stepsMarks),
    };
  };
}

function stepsMarks(method) {
  const points = column => method.course.map((step, k) => [k, step[column]]);
  const curve = { values: points('value'), low: points('low'), high: points('high') };
  const bands = method.course.some(step => isNumber(step.low)) ? curve : { values: curve.values };
  return curveMarks({ name: method.name, metrics: { course: bands } }, { key: 'course' }, (own, column) => own[column]);
}

function stepsHover(check, visible, k) {
  const rows = visible.map(method => {
    const { value } = method.course[k];
    return [method.name, isNumber(value) ? decimal(value) : 'undefined', interval(method.course[k])];
  });
  return hoverTable(`${check.stepTitle} ${check.steps[k]}`, rows);
}
