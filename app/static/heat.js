// A frame with attention over it. The same scale as app/heat.py: from an even share to the strongest place.

const INFERNO = [
  [0, 0, 4], [31, 12, 72], [85, 15, 109], [136, 34, 106], [186, 54, 85],
  [227, 89, 51], [249, 140, 10], [249, 201, 50], [252, 255, 164],
];
const LEAST_RANGE = 2;
const [DIM, GLOW] = [0.24, 0.64];

function colour(strength) {
  const place = Math.min(Math.max(strength, 0), 1) * (INFERNO.length - 1);
  const low = Math.min(Math.floor(place), INFERNO.length - 2);
  return INFERNO[low].map((value, k) => value + (INFERNO[low + 1][k] - value) * (place - low));
}

function strengths(weights) {
  if (weights.length === 1) return [0];
  const even = 1 / weights.length;
  const top = Math.max(...weights, Math.min(1, LEAST_RANGE * even));
  return weights.map((weight) => Math.max(0, (weight - even) / (top - even)));
}

export function drawFrame(canvas, image, spatial, weights, boxes) {
  const zoom = Math.max(1, Math.min(3, 640 / image.naturalWidth));
  canvas.width = image.naturalWidth * zoom;
  canvas.height = image.naturalHeight * zoom;
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = true;
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  if (!weights) return;
  if (spatial.kind === "grid") drawGrid(pen, strengths(weights), spatial.rows, spatial.columns, spatial.view || [0, 0, 1, 1]);
  else drawBoxes(pen, strengths(weights), boxes);
}

// Bilinear by strength, not by colour, as the picture on the server is.
function drawGrid(pen, strength, rows, columns, [x0, y0, x1, y1]) {
  const [width, height] = [(x1 - x0) * pen.canvas.width, (y1 - y0) * pen.canvas.height];
  const small = new OffscreenCanvas(Math.max(1, Math.min(width, 160)), Math.max(1, Math.min(height, 160)));
  const at = (row, column) => strength[Math.min(Math.max(row, 0), rows - 1) * columns + Math.min(Math.max(column, 0), columns - 1)];
  paint(small, (x, y) => {
    const [row, column] = [((y + 0.5) / small.height) * rows - 0.5, ((x + 0.5) / small.width) * columns - 0.5];
    const [r, c] = [Math.floor(row), Math.floor(column)];
    const [down, right] = [row - r, column - c];
    return (at(r, c) * (1 - right) + at(r, c + 1) * right) * (1 - down) + (at(r + 1, c) * (1 - right) + at(r + 1, c + 1) * right) * down;
  });
  pen.drawImage(small, x0 * pen.canvas.width, y0 * pen.canvas.height, width, height);
}

function paint(canvas, strengthAt) {
  const pen = canvas.getContext("2d");
  const pixels = pen.createImageData(canvas.width, canvas.height);
  for (let y = 0; y < canvas.height; y += 1) {
    for (let x = 0; x < canvas.width; x += 1) {
      const strength = strengthAt(x, y);
      pixels.data.set([...colour(strength), 255 * (DIM + (GLOW - DIM) * strength)], 4 * (y * canvas.width + x));
    }
  }
  pen.putImageData(pixels, 0, 0);
}

function drawBoxes(pen, strength, boxes) {
  const { width, height } = pen.canvas;
  const ranked = boxes.map((box, k) => [strength[k], box]).sort(([a], [b]) => a - b);
  ranked.forEach(([value, [x0, y0, x1, y1]], k) => {
    const place = [x0 * width, y0 * height, (x1 - x0) * width, (y1 - y0) * height];
    const ink = colour(0.35 + 0.65 * value).join(" ");
    pen.fillStyle = `rgb(${ink} / ${(GLOW * value) / 2})`;
    pen.fillRect(...place);
    if (k < ranked.length - 3) return;
    pen.strokeStyle = `rgb(${ink})`;
    pen.lineWidth = 3;
    pen.strokeRect(...place);
  });
}
