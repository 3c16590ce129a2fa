// Attention as heat over the film. The same scale as app/attention_picture/heatmap.py: from an even share to the strongest place.

import { strongest } from "./evidence.js";

const INFERNO = [
  [0, 0, 4], [31, 12, 72], [85, 15, 109], [136, 34, 106], [186, 54, 85],
  [227, 89, 51], [249, 140, 10], [249, 201, 50], [252, 255, 164],
];
const LEAST_RANGE = 2;
const [DIM, GLOW] = [0.24, 0.64];
const FINE = 72; // pixels a side that heat is computed for, before the browser smooths it over the film

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

// Draws over the film. places: {weights, boxes}; look: "heat" in colours, or "spotlight", which darkens all but the place; strength: of the whole, in [0, 1].
export function drawHeat(canvas, spatial, { weights, boxes }, look, strength, sharpness = window.devicePixelRatio || 1) {
  const [width, height] = [Math.round(canvas.clientWidth * sharpness), Math.round(canvas.clientHeight * sharpness)];
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  if (!width || !height) return;
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, width, height);
  pen.globalAlpha = strength;
  paintHeat(pen, [width, height], spatial, { weights, boxes }, look, sharpness);
  pen.globalAlpha = 1;
}

// The same with a pen of any canvas, on so many of its pixels.
export function paintHeat(pen, size, spatial, { weights, boxes }, look, sharpness) {
  if (boxes && look === "spotlight") shadeAround(pen, size, boxes[strongest(weights)]);
  else if (boxes) drawBoxes(pen, size, boxes.length > 1 ? strengths(weights) : [1], boxes, sharpness);
  else drawCells(pen, size, strengths(weights), edgesOf(spatial), look === "spotlight" ? shadeOf : inkOf, sharpness);
}

// [red, green, blue, opacity] of a strength.
const inkOf = (strength) => [...colour(strength), 255 * (DIM + (GLOW - DIM) * strength)];
const shadeOf = (strength) => [0, 0, 0, 215 * (1 - strength) ** 1.5];

// Where rows and columns begin and end, in [0, 1] of the picture; answers of earlier versions have a view alone.
export function edgesOf({ rows, columns, view = [0, 0, 1, 1], row_edges, column_edges }) {
  const even = (count, begin, end) => Array.from({ length: count + 1 }, (_, k) => begin + ((end - begin) * k) / count);
  return [row_edges || even(rows, view[1], view[3]), column_edges || even(columns, view[0], view[2])];
}

// Bilinear between the middles of cells, by strength and not by colour, as the picture on the server is.
function drawCells(pen, [fullWidth, fullHeight], strength, [rowEdges, columnEdges], ink, sharpness) {
  const [columns, [y0, height], [x0, width]] = [columnEdges.length - 1, reach(rowEdges, fullHeight), reach(columnEdges, fullWidth)];
  const small = new OffscreenCanvas(FINE, FINE);
  const [down, across] = [betweenMiddles(rowEdges, small.height), betweenMiddles(columnEdges, small.width)];
  paint(small, ink, (x, y) => {
    const [[upper, lower, fall], [left, right, run]] = [down[y], across[x]];
    const level = (row) => strength[row * columns + left] * (1 - run) + strength[row * columns + right] * run;
    return level(upper) * (1 - fall) + level(lower) * fall;
  });
  pen.imageSmoothingQuality = "high";
  pen.drawImage(small, x0, y0, width, height);
  if (width > 0.99 * fullWidth && height > 0.99 * fullHeight) return;
  pen.setLineDash([6 * sharpness, 4 * sharpness]);
  pen.lineWidth = sharpness;
  pen.strokeStyle = "rgb(255 255 255 / 0.8)";
  pen.strokeRect(x0, y0, width, height);
}

// Begin and length in pixels.
const reach = (edges, pixels) => [edges[0] * pixels, (edges.at(-1) - edges[0]) * pixels];

// For each of `count` even places between the outer edges the two nearest cells, and the share of the second.
export function betweenMiddles(edges, count) {
  const middles = edges.slice(1).map((end, k) => (edges[k] + end) / 2);
  return Array.from({ length: count }, (_, number) => {
    const place = edges[0] + ((edges.at(-1) - edges[0]) * (number + 0.5)) / count;
    const after = middles.filter((middle) => middle <= place).length;
    const [low, high] = [Math.max(after - 1, 0), Math.min(after, middles.length - 1)];
    return [low, high, high > low ? (place - middles[low]) / (middles[high] - middles[low]) : 0];
  });
}

function paint(canvas, ink, strengthAt) {
  const pen = canvas.getContext("2d");
  const pixels = pen.createImageData(canvas.width, canvas.height);
  for (let y = 0; y < canvas.height; y += 1) {
    for (let x = 0; x < canvas.width; x += 1) {
      pixels.data.set(ink(strengthAt(x, y)), 4 * (y * canvas.width + x));
    }
  }
  pen.putImageData(pixels, 0, 0);
}

function shadeAround(pen, [width, height], [x0, y0, x1, y1]) {
  pen.fillStyle = "rgb(0 0 0 / .8)";
  pen.beginPath();
  pen.rect(0, 0, width, height);
  pen.rect(x0 * width, y0 * height, (x1 - x0) * width, (y1 - y0) * height);
  pen.fill("evenodd");
}

function drawBoxes(pen, [width, height], strength, boxes, sharpness) {
  const ranked = boxes.map((box, k) => [strength[k], box]).sort(([a], [b]) => a - b);
  ranked.forEach(([value, [x0, y0, x1, y1]], k) => {
    const place = [x0 * width, y0 * height, (x1 - x0) * width, (y1 - y0) * height];
    const ink = colour(0.35 + 0.65 * value).join(" ");
    pen.fillStyle = `rgb(${ink} / ${(GLOW * value) / 2})`;
    pen.fillRect(...place);
    if (k < ranked.length - 3) return;
    pen.strokeStyle = `rgb(${ink})`;
    pen.lineWidth = 2.5 * sharpness;
    pen.strokeRect(...place);
  });
}
