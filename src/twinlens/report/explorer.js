'use strict';

// The sample explorer: one sample at a time, what each method marks in it, and what the model says as features go.

function explorer() {
  const stage = element('div');
  const made = new Map();
  const show = run => {
    if (!made.has(run)) {
      const some = run.explorer.samples.length > 0;
      made.set(run, some ? explore(run) : element('p', { class: 'empty' }, run.explorer.note));
    }
    stage.replaceChildren(made.get(run));
  };
  const buttons = content.runs.map(run =>
    element(
      'button',
      {
        type: 'button',
        class: 'choice',
        onclick: event => choose(event.currentTarget, buttons, () => show(run)),
      },
      name(run.name),
    ),
  );
  choose(buttons[0], buttons, () => show(content.runs[0]));
  return element(
    'section',
    { id: 'explorer' },
    element('h2', {}, 'Samples'),
    element(
      'p',
      { class: 'lead' },
      'Those that tell most about this evaluation: what each method marks, what of it was judged false, ' +
        'and what the model sees and says as features are removed.',
    ),
    several ? element('div', { class: 'choices', role: 'group', 'aria-label': 'Run' }, ...buttons) : null,
    stage,
  );
}

/** Presses one of several buttons and does what it stands for. */
function choose(chosen, buttons, action) {
  for (const button of buttons) button.setAttribute('aria-pressed', String(button === chosen));
  action();
}

function explore(run) {
  const { samples, levels: shown, note } = run.explorer;
  const state = { sample: samples[0], k: Math.floor(shown.length * 0.7) };
  const head = element('div');
  const stage = element('div', { class: 'cards' });
  const slider = element('input', {
    type: 'range',
    class: 'slider',
    'aria-label': 'Share removed',
    min: 0,
    max: shown.length - 1,
    step: 1,
    value: state.k,
  });
  const saying = element('output');
  const course = element('div', { class: 'chart course', 'data-chart': 'course' });
  let redraw = () => {};
  const update = () => {
    saying.textContent = levelText(run.explorer, state.k);
    slider.setAttribute('aria-valuetext', saying.textContent);
    showLevel(stage, run.explorer, state);
    redraw();
  };
  slider.addEventListener('input', () => {
    state.k = Number(slider.value);
    update();
  });
  const thumbs = samples.map(sample =>
    element(
      'button',
      {
        type: 'button',
        class: 'thumb',
        title: sample.id,
        onclick: event =>
          choose(event.currentTarget, thumbs, () => {
            state.sample = sample;
            head.replaceChildren(subject(sample));
            stage.replaceChildren(...cards(run, sample));
            update();
          }),
      },
      picture(sample.input, ''),
      element('span', {}, name(sample.label)),
      element('small', {}, sample.reason),
    ),
  );
  requestAnimationFrame(() => {
    redraw = drawChart(course, courseOption(run, state));
  });
  thumbs[0].click();
  onMethods(() => {
    for (const card of stage.querySelectorAll('[data-method]')) card.hidden = hidden.has(card.dataset.method);
  });
  return element(
    'div',
    { class: run.explorer.strip ? 'explore strip' : 'explore' },
    note ? element('p', { class: 'quiet' }, note) : null,
    element('div', { class: 'thumbs', role: 'group', 'aria-label': 'Sample' }, ...thumbs),
    element('div', { class: 'head' }, head, captioned('Probability of its class as features are removed', course)),
    element('div', { class: 'level' }, element('p', {}, 'Removed: ', saying), slider),
    run.explorer.judged ? falseKey() : null,
    stage,
  );
}

function levelText({ by, order, relative, levels: shown }, k) {
  if (by === 'value') return `what exceeds ${decimal(shown[k], 2)}${relative ? " of the map's maximum" : ''}`;
  return `${percent(shown[k])} of the features, ${order === 'lerf' ? 'least' : 'most'} relevant first`;
}

/** A picture; small ones show their pixels as squares. */
function picture(uri, alt) {
  return element('img', {
    src: uri,
    alt,
    class: uri.startsWith('data:image/png') ? 'pixels' : null,
    draggable: 'false',
  });
}

function captioned(caption, inside) {
  return element('figure', {}, inside, element('figcaption', {}, caption));
}

function falseKey() {
  return element(
    'p',
    { class: 'quiet key' },
    element('i', { class: 'stands' }),
    'attribution that stands ',
    element('i', { class: 'false' }),
    'attribution judged false; the stronger the colour, the more of it',
  );
}

function subject(sample) {
  return element(
    'div',
    { class: 'subject' },
    picture(sample.input, `Input ${sample.id}`),
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
    .map(method => card(sample, method));
}

function card(sample, method) {
  const shown = sample.methods[method];
  const pictures = shown.map
    ? element(
        'div',
        { class: 'triple' },
        captioned('map', picture(shown.map, `Map of ${method}`)),
        shown.false ? captioned('judged false', picture(shown.false, `What of ${method} was judged false`)) : null,
        shown.frames ? captioned('the model sees', picture(shown.frames[0], '')) : null,
      )
    : element('p', { class: 'empty' }, 'Its map is not stored.');
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
    element('h3', {}, swatch(method), name(method)),
    pictures,
    element('p', { class: 'answer' }, element('span', { class: 'said' }), element('b')),
    element('meter', { min: 0, max: 1 }),
    isNumber(shown.falseShare)
      ? element('p', { class: 'quiet' }, `${percent(shown.falseShare)} of its attribution judged false in the end.`)
      : null,
    odd,
  );
}

/** Puts the pictures and answers of one level into the cards. */
function showLevel(stage, { levels: shown }, { sample, k }) {
  for (const made of stage.querySelectorAll('[data-method]')) {
    const method = made.dataset.method;
    const { frames, predicted, correct, probability } = sample.methods[method];
    if (frames) {
      const image = made.querySelector('.triple figure:last-child img');
      image.src = frames[k];
      image.alt = `Input as the model sees it, ${method}, level ${shown[k]}`;
    }
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
      yAxis: axis(likely ? 'probability' : 'predicted value', likely ? { min: 0, max: 1, interval: 0.25 } : {}, colours, {
        nameGap: 36,
      }),
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
