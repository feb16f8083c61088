'use strict';

// The sample explorer: one sample at a time, what each method marks in it, and what the model says as features go.
// Files called …_view.js draw samples of each kind.

/** How samples are drawn, by their kind: small, whole, and in the card of a method, at each level. */
const VIEWS = { text: textView, table: tableView, signal: signalView, image: imageView, volume: volumeView };

/** A link to a sample, and perhaps to a method's card; without a run, to that of a page with one run. */
function sampleLink(run, sample, method) {
  const place = { ...(several ? { run: run.name } : {}), sample: sample.id, ...(method ? { method } : {}) };
  return `#${new URLSearchParams(place)}`;
}

function explorer() {
  const stage = element('div');
  const made = new Map();
  const links = content.runs.map(run => {
    const [sample] = run.explorer.samples;
    return element('a', { class: 'choice', href: sampleLink(run, sample ?? { id: '' }) }, name(run.name));
  });
  const section = element(
    'section',
    { id: 'explorer' },
    heading('h2', 'explorer', 'Samples'),
    element(
      'p',
      { class: 'lead' },
      'Those that tell most about this evaluation: what each method marks, ' +
        `${content.runs.some(run => run.explorer.judged) ? 'what of it was judged false, ' : ''}` +
        'and what the model sees and says as features are removed.',
    ),
    several ? element('nav', { class: 'choices', 'aria-label': 'Run' }, ...links) : null,
    stage,
  );
  const follow = () => {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const asked = wanted.has('sample');
    if (location.hash && !asked && made.size) return; // a part of the page, and no sample
    const place = Math.max(
      0,
      content.runs.findIndex(run => run.name === wanted.get('run')),
    );
    const run = content.runs[place];
    if (!made.has(run)) made.set(run, explore(run));
    const { view, show } = made.get(run);
    stage.replaceChildren(view);
    setCurrent(links, links[place]);
    show(wanted.get('sample'), wanted.get('method'));
    const { top, bottom } = section.getBoundingClientRect();
    if (asked && (bottom < 0 || top > innerHeight)) section.scrollIntoView();
    view.querySelector('.card[aria-current]')?.scrollIntoView({ block: 'nearest' });
  };
  addEventListener('hashchange', follow);
  follow();
  addEventListener('load', () => location.hash && follow()); // once more, when the page has its height
  return section;
}

function setCurrent(links, chosen) {
  for (const link of links) link.removeAttribute('aria-current');
  chosen?.setAttribute('aria-current', 'true');
}

/** The samples of a run: what is seen, and a function that shows one of them by its id, and one method of it. */
function explore(run) {
  const { samples, levels: shown, note, kind } = run.explorer;
  if (!samples.length) return { view: element('p', { class: 'empty' }, note), show: () => {} };
  const kindView = VIEWS[kind];
  const state = { sample: samples[0], k: Math.floor(shown.length * 0.7) };
  const head = element('div');
  const stage = element('div', { class: 'cards' });
  const { level, update } = levelSlider(run.explorer, state, stage);
  const control = kindView.control?.(state, update);
  if (control) level.append(control.view);
  const thumbs = samples.map(sample => thumb(run, sample));
  const course = chartFigure('course', courseOption(run, state), {
    caption: 'Probability of its class as features are removed',
    ready: draw => update.also.push(draw),
  });
  const show = (id, method) => {
    const place = Math.max(
      0,
      samples.findIndex(sample => sample.id === id),
    );
    state.sample = samples[place];
    setCurrent(thumbs, thumbs[place]);
    control?.set();
    head.replaceChildren(subject(state, kindView));
    stage.replaceChildren(...cards(run, state.sample));
    const cardsShown = [...stage.children];
    setCurrent(
      cardsShown,
      cardsShown.find(each => each.dataset.method === method),
    );
    if (hidden.has(method)) setHidden(set => set.delete(method));
    update();
    if (kindView.shown) requestAnimationFrame(() => stage.querySelectorAll('.card:has(.view)').forEach(kindView.shown));
  };
  onMethods(() => {
    for (const card of stage.querySelectorAll('[data-method]')) card.hidden = hidden.has(card.dataset.method);
  });
  const view = element(
    'div',
    { class: 'explore', 'data-kind': kind },
    note ? element('p', { class: 'quiet' }, note) : null,
    element('nav', { class: 'thumbs', 'aria-label': 'Sample' }, ...thumbs),
    element('div', { class: 'head' }, head, course),
    level,
    key(run.explorer),
    stage,
  );
  return { view, show };
}

function thumb(run, sample) {
  return element(
    'a',
    { class: 'thumb', href: sampleLink(run, sample), title: sample.id },
    VIEWS[run.explorer.kind].thumb(sample),
    element('span', {}, name(sample.label)),
    element('small', {}, sample.reason),
  );
}

/** The slider over levels; `update` brings cards and all that is in `update.also` to the level where it stands. */
function levelSlider(about, state, stage) {
  const saying = element('output');
  const slider = element('input', {
    type: 'range',
    class: 'slider',
    'aria-label': 'Share removed',
    min: 0,
    max: about.levels.length - 1,
    step: 1,
    value: state.k,
  });
  const update = () => {
    saying.textContent = levelText(about, state.k);
    slider.setAttribute('aria-valuetext', saying.textContent);
    showLevel(stage, about, state);
    for (const other of update.also) other();
  };
  update.also = [];
  slider.addEventListener('input', () => {
    state.k = Number(slider.value);
    update();
  });
  return { level: element('div', { class: 'level' }, element('p', {}, 'Removed: ', saying), slider), update };
}

function levelText({ by, order, relative, levels: shown }, k) {
  if (by === 'value') return `what exceeds ${decimal(shown[k], 2)}${relative ? " of the map's maximum" : ''}`;
  return `${percent(shown[k])} of the features, ${order === 'lerf' ? 'least' : 'most'} relevant first`;
}

/** What colours and marks mean. */
function key({ judged, kind }) {
  const colours = [
    element('i', { class: 'stands' }),
    'attribution that stands ',
    element('i', { class: 'false' }),
    'attribution judged false; the stronger the colour, the more of it. ',
  ];
  const words = [...(judged ? colours : []), VIEWS[kind].key ?? ''];
  return element('p', { class: 'quiet key' }, ...words);
}

function subject(state, kindView) {
  const { sample } = state;
  return element(
    'div',
    { class: kindView.wide ? 'subject wide' : 'subject' },
    kindView.subject(sample, state),
    element(
      'div',
      {},
      element('h3', {}, name(sample.label)),
      element('p', { class: 'quiet' }, name(sample.id)),
      element(
        'p',
        {},
        ...(isNumber(sample.probability)
          ? [
              sample.correct ? 'Recognised' : element('span', {}, 'Taken for ', name(sample.predicted)),
              `, ${percent(sample.probability)} for its class, with nothing removed.`,
            ]
          : ['The model says ', name(sample.predicted), ' with nothing removed.']),
      ),
      element('p', { class: 'quiet' }, `${sample.reason}.`),
    ),
  );
}

/** One card per method. */
function cards(run, sample) {
  return run.methods
    .map(method => method.name)
    .filter(method => method in sample.methods)
    .map(method => card(run, sample, method));
}

function card(run, sample, method) {
  const shown = sample.methods[method];
  const odd =
    shown.kind === 'regular'
      ? null
      : element(
          'p',
          { class: 'quiet' },
          `This map is ${shown.kind === 'zero' ? 'zero everywhere' : 'constant'}: it ranks no feature above another.`,
        );
  return element(
    'article',
    { class: 'card', 'data-method': method, hidden: hidden.has(method) },
    element(
      'h3',
      {},
      swatch(method),
      name(method),
      anchor(sampleLink(run, sample, method), 'Link to this method and sample'),
    ),
    shown.view
      ? element('div', { class: 'view' }, VIEWS[run.explorer.kind].card(sample, method, shown.view))
      : element('p', { class: 'empty' }, 'Its map is not stored.'),
    element('p', { class: 'answer' }, element('span', { class: 'said' }), element('b')),
    element('meter', { min: 0, max: 1 }),
    isNumber(shown.falseShare)
      ? element('p', { class: 'quiet' }, `${percent(shown.falseShare)} of its attribution judged false in the end.`)
      : null,
    isNumber(shown.area) ? element('p', { class: 'quiet' }, ownNumber(run.explorer, shown.area)) : null,
    odd,
  );
}

/** What the metric says about one map. */
function ownNumber({ title, chance }, area) {
  const chanceText = isNumber(chance) ? `, by chance ${chance}` : '';
  return element('span', {}, 'This map: ', name(title), ` ${decimal(area)}${chanceText}.`);
}

/** Puts the pictures and answers of one level into the cards. */
function showLevel(stage, { levels: shown, kind }, state) {
  const { sample, k } = state;
  for (const made of stage.querySelectorAll('[data-method]')) {
    const method = made.dataset.method;
    const { view, predicted, correct, probability } = sample.methods[method];
    if (view) VIEWS[kind].level(made, sample, method, view, { ...state, level: shown[k] });
    const meter = made.querySelector('meter');
    meter.hidden = !isNumber(probability[k]);
    if (meter.hidden) {
      made.querySelector('.said').replaceChildren(name(predicted[k]));
      continue;
    }
    made.querySelector('.said').replaceChildren(correct[k] ? '✓ ' : '✗ ', name(predicted[k]));
    made.querySelector('.answer').classList.toggle('wrong', !correct[k]);
    made.querySelector('b').textContent = percent(probability[k]);
    meter.value = probability[k];
    meter.setAttribute('aria-label', `Probability of ${sample.label}`);
  }
}

/** The probability of the sample's class over all levels, with a line where the slider stands. */
function courseOption(run, state) {
  const { by, levels: shown, answer } = run.explorer;
  const likely = answer === 'probability';
  return colours => {
    const methods = run.methods
      .map(method => method.name)
      .filter(method => method in state.sample.methods && !hidden.has(method));
    const at = shown[state.k];
    const marker = {
      silent: true,
      symbol: 'none',
      label: { show: false },
      data: [{ xAxis: at }],
      lineStyle: { color: colours.text, width: 1.5, type: 'solid' },
    };
    return {
      ...frame(
        colours,
        `${likely ? 'Probability of the class' : 'Predicted value'} of the chosen sample as features are removed.`,
      ),
      tooltip: {
        ...tooltip(colours),
        trigger: 'axis',
        formatter: items =>
          hoverTable(
            `${by === 'value' ? 'threshold' : 'share removed'} ${decimal(items[0].axisValue, 2)}`,
            items.map(item => [item.seriesName, likely ? percent(item.data[1]) : decimal(item.data[1], 3), null]),
          ),
      },
      xAxis: axis(
        by === 'value' ? 'attribution threshold' : 'share of features removed',
        { min: 0, max: 1, interval: 0.2 },
        colours,
        { inverse: by === 'value' },
      ),
      yAxis: axis(
        likely ? 'probability' : 'predicted value',
        likely ? { min: 0, max: 1, interval: 0.25 } : {},
        colours,
        {
          nameGap: 36,
        },
      ),
      series: methods.map((method, k) => {
        const { colour, dash } = styleOf(method);
        return {
          type: 'line',
          name: method,
          data: state.sample.methods[method].course,
          symbol: 'none',
          itemStyle: { color: colour },
          lineStyle: { color: colour, width: 1.75, type: dash },
          emphasis: { disabled: true },
          markLine: k ? undefined : marker,
        };
      }),
    };
  };
}
