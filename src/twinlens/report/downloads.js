'use strict';

// Charts and tables as files, made in the browser: nothing is asked of any server.

const PNG_SCALE = 2; // pixels of a picture for each one on the screen

function save(title, kind, blob) {
  const url = URL.createObjectURL(blob);
  const file = `twinlens-${title.replace(/[^\w.-]+/g, '-').slice(0, 80)}.${kind}`;
  element('a', { href: url, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

function download(label, what, action) {
  return element(
    'button',
    { type: 'button', class: 'download', 'aria-label': `Download ${what} as ${label}`, onclick: action },
    label,
  );
}

// ---- charts

function chartDownloads(container) {
  const title = container.dataset.chart;
  return element(
    'span',
    { class: 'downloads' },
    download('SVG', `the chart ${title}`, () =>
      save(title, 'svg', new Blob([chartText(container)], { type: 'image/svg+xml' })),
    ),
    download('PNG', `the chart ${title}`, () => savePng(title, container)),
  );
}

/** A chart as it stands, with a legend of its methods below, as the text of an SVG file. */
function chartText(container) {
  const colours = theme();
  const shown = container.querySelector('svg').cloneNode(true);
  const [width, height] = [container.clientWidth, container.clientHeight];
  const names = new Set(
    echarts
      .getInstanceByDom(container)
      .getOption()
      .series.map(series => series.name),
  );
  const legend = drawing('g', { 'font-family': colours.font, 'font-size': 12, fill: colours.text });
  let [x, y] = [16, height + 12];
  for (const method of methodNames.filter(method => names.has(method))) {
    const wide = 52 + 7.2 * method.length;
    if (x > 16 && x + wide > width) [x, y] = [16, y + 20];
    const sign = swatch(method);
    for (const [key, value] of Object.entries({ x, y: y - 6, width: 28, height: 12 })) sign.setAttribute(key, value);
    legend.append(sign, drawing('text', { x: x + 34, y: y + 4 }, method));
    x += wide;
  }
  const box = { width, height: y + 20, viewBox: `0 0 ${width} ${y + 20}` };
  const paper = drawing('rect', { width, height: y + 20, fill: colours.paper });
  return new XMLSerializer().serializeToString(drawing('svg', box, paper, shown, legend));
}

function savePng(title, container) {
  const image = new Image();
  image.onload = () => {
    const canvas = element('canvas', { width: image.width * PNG_SCALE, height: image.height * PNG_SCALE });
    canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(blob => save(title, 'png', blob));
  };
  image.src = `data:image/svg+xml,${encodeURIComponent(chartText(container))}`;
}

// ---- tables

/** A cell of a CSV file that no spreadsheet takes for a formula. */
function csvText(value) {
  if (value === null || value === undefined) return '';
  if (isNumber(value)) return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csvDownload(title, rows) {
  return download('CSV', `the table ${title}`, () => {
    const lines = rows().map(row => `${row.map(csvText).join(',')}\n`);
    save(title, 'csv', new Blob(lines, { type: 'text/csv' }));
  });
}
