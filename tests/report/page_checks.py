"""Scripts that look for what no page should have."""

# Text that is wider than the box that hides it, on the page as it stands.
CLIPPED = """
return [...document.querySelectorAll('#page *')].filter(e => {
  const { overflowX, clipPath } = getComputedStyle(e);
  return e.scrollWidth > e.clientWidth + 1 && overflowX === 'hidden' && clipPath === 'none' && e.tagName !== 'svg';
}).map(e => `${e.tagName}.${e.className}: ${e.textContent.slice(0, 40)}`)
"""
# Contrast of each piece of text with what is painted behind it.
CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const rgba = colour => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const linear = v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const light = ([r, g, b]) => [r, g, b].map(v => linear(v / 255))
  .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
const behind = e => {
  for (; e; e = e.parentElement) {
    const found = rgba(getComputedStyle(e).backgroundColor);
    if (found[3] === 255) return found;
  }
};
const low = [];
for (const folded of document.querySelectorAll('details')) folded.open = true;
for (const e of document.querySelectorAll('#page *')) {
  const own = [...e.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  if (!own || e.closest('svg') || !e.checkVisibility() || e.disabled) continue;
  const [a, b] = [light(rgba(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) low.push(`${e.tagName}.${e.className} ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
}
return low
"""
