// Draws a film's picture with heat and caption burnt in, and records some seconds of it as a clip; all of it in the browser.

import { placesAt, strengthAt } from "./evidence.js";
import { paintHeat } from "./heat.js";

const CLIP = [1280, 720];
const [SHORTEST, LONGEST] = [3, 6]; // seconds of a clip
const FRAMES_A_SECOND = 25;
const KINDS = [["video/mp4;codecs=avc1.42E01F", "mp4"], ["video/mp4", "mp4"], ["video/webm;codecs=vp9", "webm"], ["video/webm", "webm"]];
const [ACCENT, DARK, DIM] = ["#ff9a5c", "#1b0d04", "#cfcac3"];

// The film as it stands, on a canvas of any shape: its picture whole over itself blurred, heat, caption and the page's name.
export function drawFrame(canvas, view) {
  const pen = canvas.getContext("2d");
  const { width, height } = canvas;
  const picture = view.player.ready ? view.player.video : view.player.slide;
  const [wide, tall] = [picture.videoWidth || picture.naturalWidth, picture.videoHeight || picture.naturalHeight];
  if (!wide) return;
  const place = (scale) => [(width - wide * scale) / 2, (height - tall * scale) / 2, wide * scale, tall * scale];
  pen.filter = "blur(24px) brightness(.5)";
  pen.drawImage(picture, ...place(1.1 * Math.max(width / wide, height / tall)));
  pen.filter = "none";
  const whole = place(Math.min(width / wide, height / tall));
  pen.drawImage(picture, ...whole);
  const { evidence, subtitle } = view;
  const word = view.word();
  const places = word && subtitle.look !== "none" && placesAt(word, evidence, subtitle.seconds);
  if (places) {
    pen.save();
    pen.translate(whole[0], whole[1]);
    pen.globalAlpha = word.moment === null ? 0.8 : 0.3 + 0.7 * strengthAt(word, evidence.moments, subtitle.seconds);
    paintHeat(pen, [whole[2], whole[3]], evidence.spatial, places, subtitle.look, 1.5);
    pen.restore();
  }
  drawCaption(pen, width, height, evidence?.words || [], word);
}

function drawCaption(pen, width, height, words, lit) {
  const shade = pen.createLinearGradient(0, height * 0.6, 0, height);
  shade.addColorStop(0, "rgb(8 7 7 / 0)");
  shade.addColorStop(1, "rgb(8 7 7 / .88)");
  pen.fillStyle = shade;
  pen.fillRect(0, height * 0.6, width, height * 0.4);
  const [size, margin] = [Math.round(height / 15), Math.round(width / 28)];
  const font = (word) => `${word.isContent ? 700 : 400} ${size}px system-ui, sans-serif`;
  const lines = [[]];
  let x = margin;
  for (const word of words) {
    pen.font = font(word);
    const length = pen.measureText(word.text).width;
    if (x + length > width - margin) { lines.push([]); x = margin; }
    lines.at(-1).push([word, x, length]);
    x += length + size * 0.32;
  }
  lines.forEach((line, k) => line.forEach(([word, left, length]) => {
    const base = height - margin - (lines.length - 1 - k) * size * 1.35;
    pen.font = font(word);
    if (word === lit) {
      pen.fillStyle = ACCENT;
      pen.beginPath();
      pen.roundRect(left - size * 0.18, base - size, length + size * 0.36, size * 1.3, size * 0.2);
      pen.fill();
    }
    pen.fillStyle = word === lit ? DARK : word.isContent ? "#fff" : DIM;
    pen.fillText(word.text, left, base);
  }));
  pen.font = `700 ${Math.round(size * 0.55)}px system-ui, sans-serif`;
  pen.fillStyle = "rgb(255 255 255 / .85)";
  pen.textAlign = "right";
  pen.fillText("Reelword", width - margin, margin);
  pen.textAlign = "left";
}

// Plays the looped part, or some seconds around where the film stands, and records them. Returns {blob, ending}; blob null where the browser cannot.
export async function recordClip(view) {
  const kind = globalThis.MediaRecorder && KINDS.find(([type]) => MediaRecorder.isTypeSupported(type));
  if (!kind || view.player.kind === "none") return { blob: null };
  const { player } = view;
  const seconds = Math.min(LONGEST, Math.max(SHORTEST, player.part ? player.part[1] - player.part[0] : Math.min(player.length, LONGEST)));
  const start = player.part?.[0] ?? Math.max(0, Math.min(player.at - seconds / 2, player.length - seconds));
  const canvas = Object.assign(document.createElement("canvas"), { width: CLIP[0], height: CLIP[1] });
  drawFrame(canvas, view);
  const recorder = new MediaRecorder(canvas.captureStream(FRAMES_A_SECOND), { mimeType: kind[0], videoBitsPerSecond: 4e6 });
  const parts = [];
  recorder.ondataavailable = ({ data }) => parts.push(data);
  const ended = new Promise((resolve) => { recorder.onstop = resolve; });
  player.seek(start);
  player.start();
  recorder.start();
  const drawing = setInterval(() => drawFrame(canvas, view), 1000 / FRAMES_A_SECOND);
  await new Promise((resolve) => { setTimeout(resolve, 1000 * seconds); });
  clearInterval(drawing);
  recorder.stop();
  await ended;
  return { blob: new Blob(parts, { type: kind[0] }), ending: kind[1] };
}
