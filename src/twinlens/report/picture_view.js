'use strict';

// Samples as pictures: images, and the slices of volumes.

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

const imageView = {
  thumb: sample => picture(sample.input, ''),
  subject: sample => picture(sample.input, `Input ${sample.id}`),
  card: (sample, method, { map, false: wrong, frames }) =>
    element(
      'div',
      { class: 'triple' },
      captioned('map', picture(map, `Map of ${method}`)),
      wrong ? captioned('judged false', picture(wrong, `What of ${method} was judged false`)) : null,
      captioned('the model sees', picture(frames[0], '')),
    ),
  level: (card, sample, method, { frames }, { k, level }) => {
    const image = card.querySelector('.triple figure:last-child img');
    image.src = frames[k];
    image.alt = `Input as the model sees it, ${method}, level ${level}`;
  },
};

/** One slice of a picture that holds all slices side by side. */
function slice(uri, { across, numbers, shape: [height, width] }, label) {
  const rows = Math.ceil(numbers.length / across);
  const sheet = drawing('image', {
    href: uri,
    width: across * (width + 2),
    height: rows * (height + 2),
    preserveAspectRatio: 'none',
    class: uri.startsWith('data:image/png') ? 'pixels' : '',
  });
  return drawing('svg', { class: 'slice', role: 'img', 'aria-label': label }, sheet);
}

/** Moves drawings to the slice at a place; each slice has a border of one pixel. */
function turnTo(slices, { across, shape: [height, width] }, place) {
  const left = (place % across) * (width + 2) + 1;
  const top = Math.floor(place / across) * (height + 2) + 1;
  for (const each of slices) each.setAttribute('viewBox', `${left} ${top} ${width} ${height}`);
}

/** The slider over slices, and a function that sets it to where a sample has most attribution. */
function sliceSlider(state, update) {
  const saying = element('output');
  const slider = element('input', { type: 'range', class: 'slider slices', 'aria-label': 'Slice', min: 0, step: 1 });
  const say = () => {
    const { numbers, of } = state.sample.input;
    saying.textContent = `${numbers[state.slice] + 1} of ${of}`;
    slider.setAttribute('aria-valuetext', saying.textContent);
  };
  slider.addEventListener('input', () => {
    state.slice = Number(slider.value);
    say();
    state.turn();
    update();
  });
  const set = () => {
    state.slice = state.sample.input.start;
    slider.max = state.sample.input.numbers.length - 1;
    slider.value = state.slice;
    say();
  };
  return { view: element('div', {}, element('p', {}, 'Slice along the first axis: ', saying), slider), set };
}

const volumeView = {
  thumb: ({ input }) => {
    const small = slice(input.sheet, input, '');
    turnTo([small], input, input.start);
    return small;
  },
  subject: ({ id, input }, state) => {
    const whole = slice(input.sheet, input, `Input ${id}`);
    state.turn = () => turnTo([whole], input, state.slice);
    state.turn();
    return whole;
  },
  card: ({ input }, method, { map, frames }) =>
    element(
      'div',
      { class: 'triple' },
      captioned('input', slice(input.sheet, input, 'Input')),
      captioned('map over it', slice(map, input, `Map of ${method}`)),
      captioned('the model sees', slice(frames[0], input, `Input as the model sees it, ${method}`)),
    ),
  level: (card, { input }, method, { frames }, { k, slice: place }) => {
    card.querySelector('.triple figure:last-child image').setAttribute('href', frames[k]);
    turnTo(card.querySelectorAll('.slice'), input, place);
  },
  control: sliceSlider,
};
