'use strict';

// Samples as signals: a line for each channel, attribution below all of them, or below each if it has its own.

/** The path of a line of numbers from 0 to 255. */
function linePath(numbers) {
  return Array.from(numbers, (number, k) => `${k ? 'L' : 'M'}${k} ${255 - number}`).join('');
}

/** The path of bars, each with its height out of 100, for the bins that `some` chooses. */
function barPath(heights, some) {
  const bar = (height, k) => (height && some(k) ? `M${k} 100V${100 - height}H${k + 1}V100Z` : '');
  return Array.from(heights, bar).join('');
}

/** A drawing that fills its box, of a width and height in its own units. */
function stretched(kind, width, height, ...paths) {
  return drawing(
    'svg',
    { class: kind, viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    ...paths,
  );
}

/** One channel: removed stretches, its line, and the line that the model sees. */
function channel(line, kind = 'channel') {
  const numbers = unpacked(line);
  return stretched(
    kind,
    numbers.length - 1,
    255,
    drawing('path', { class: 'removed' }),
    drawing('path', { class: 'whole', d: linePath(numbers) }),
    drawing('path', { class: 'seen' }),
  );
}

function timeAxis({ steps, rate }) {
  const ends = rate ? ['0 s', `${readable(steps / rate)} s`] : ['step 0', `step ${steps - 1}`];
  return element('p', { class: 'quiet axis' }, ...ends.map(end => element('span', {}, end)));
}

/** The attribution of time steps as bars. */
function attribution({ strength: packed, false: judged }) {
  const strength = unpacked(packed);
  const wrong = unpacked(judged);
  return stretched(
    'attribution',
    strength.length,
    100,
    drawing('path', { class: 'stands', d: barPath(strength, k => !wrong?.[k]) }),
    drawing('path', { class: 'false', d: barPath(strength, k => wrong?.[k]) }),
  );
}

/** All channels of a signal, each with its name and range, and with its own attribution if there is one. */
function channels({ lines, names, ranges, of }, marks = []) {
  const rows = lines.map((line, k) =>
    element(
      'figure',
      {},
      element(
        'figcaption',
        {},
        name(names[k]),
        element('small', {}, `${readable(ranges[k][0])} to ${readable(ranges[k][1])}`),
      ),
      channel(line),
      marks.length > 1 ? attribution(marks[k]) : null,
    ),
  );
  const rest = of - lines.length;
  if (rest) rows.push(element('p', { class: 'quiet' }, `${rest} more channels are not shown.`));
  return rows;
}

const signalView = {
  wide: true,
  key: 'Thin: the signal. Thick: what the model sees. Grey stretches were removed.',
  thumb: ({ input: { lines } }) => element('div', {}, ...lines.slice(0, 3).map(line => channel(line, 'spark'))),
  subject: ({ input }) => element('div', { class: 'signal' }, ...channels(input), timeAxis(input)),
  card: ({ input }, method, { marks }) =>
    element(
      'div',
      { class: 'signal' },
      ...channels(input, marks),
      marks.length > 1
        ? null
        : element('figure', {}, element('figcaption', {}, 'attribution'), attribution(marks[0])),
      timeAxis(input),
    ),
  level: (card, { input }, method, { marks, frames }, { k }) => {
    card.querySelectorAll('svg.channel').forEach((svg, at) => {
      const levels = unpacked((marks[at] ?? marks[0]).stays);
      const scale = svg.viewBox.baseVal.width / levels.length;
      const removed = Array.from(levels, (level, bin) =>
        level <= k ? `M${bin * scale} 0h${scale}v255h${-scale}z` : '',
      );
      svg.querySelector('.removed').setAttribute('d', removed.join(''));
      if (frames) svg.querySelector('.seen').setAttribute('d', linePath(unpacked(frames[k][at])));
    });
  },
};
