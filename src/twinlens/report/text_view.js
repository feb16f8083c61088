'use strict';

// Samples as text: words, each as strong as its attribution.

const JOINED = 1;
const SPECIAL = 2;
const FEATURE = 4;

/** The numbers from 0 to 255 that a text encodes; null without a text. */
function unpacked(text) {
  return text ? Uint8Array.from(atob(text), sign => sign.charCodeAt(0)) : null;
}

/** The words of a sample; `marks` says how strong each is, and what of it is false. */
function wordList({ texts, flags, first }, marks) {
  const bits = unpacked(flags);
  const strength = unpacked(marks?.strength);
  const wrong = unpacked(marks?.false);
  const list = element('p', { class: 'words', tabindex: texts.length > 100 ? 0 : null }); // long ones scroll
  texts.forEach((text, k) => {
    const kinds = [
      'piece',
      bits[k] & SPECIAL ? 'special' : null,
      bits[k] & FEATURE ? null : 'fixed',
      wrong?.[k] ? 'false' : null,
    ];
    const said = [
      `token ${first + k}`,
      strength ? `${strength[k]}% of the largest attribution` : null,
      wrong?.[k] ? 'judged false' : null,
      bits[k] & FEATURE ? null : 'always kept',
    ];
    const piece = element(
      'span',
      { class: kinds.filter(Boolean).join(' '), title: said.filter(Boolean).join(', ') },
      text,
    );
    if (strength) piece.style.setProperty('--strength', `${Math.round(45 * Math.sqrt(strength[k] / 100))}%`);
    if (k && !(bits[k] & JOINED)) list.append(' ');
    list.append(piece);
  });
  return list;
}

/** The beginning of a text, without special tokens. */
function excerpt({ texts, flags }) {
  const bits = unpacked(flags);
  const words = texts.map((text, k) => (bits[k] & SPECIAL ? '' : (bits[k] & JOINED ? '' : ' ') + text));
  const text = words.join('').trim();
  return text.length > 70 ? `${text.slice(0, 70)}…` : text;
}

function partNote({ texts, of, first }) {
  if (texts.length === of) return null;
  return element(
    'p',
    { class: 'quiet' },
    `${texts.length} of ${of} tokens, from token ${first} on, where the maps have most attribution.`,
  );
}

const textView = {
  wide: true,
  key: 'Struck out: removed. Small and grey: special tokens.',
  thumb: ({ input }) => element('span', { class: 'excerpt' }, excerpt(input)),
  subject: ({ input }) => element('div', {}, wordList(input), partNote(input)),
  card: ({ input }, method, view) =>
    element(
      'div',
      {},
      wordList(input, view),
      view.outside
        ? element('p', { class: 'quiet' }, `${percent(view.outside)} of its attribution is on tokens not shown.`)
        : null,
    ),
  level: (card, sample, method, { stays }, { k }) => {
    const levels = unpacked(stays);
    card.querySelectorAll('.piece').forEach((piece, at) => piece.classList.toggle('gone', levels[at] <= k));
  },
  shown: card => {
    const words = card.querySelector('.words');
    const strength = piece => parseInt(piece.style.getPropertyValue('--strength'));
    const strongest = [...words.children].reduce((best, piece) => (strength(piece) > strength(best) ? piece : best));
    words.scrollTop = strongest.offsetTop - words.clientHeight / 2;
  },
};
