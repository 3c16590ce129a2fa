// What a captioner has of its own, in words and as its paper shows it: docs/api.md lists the members of "extras".

import { clockFor, make, percent } from "../text.js";
import { frameUrl } from "../jobs/server.js";
import { markDifferences } from "./comparison.js";

const MOST_CANDIDATES = 8;

// For the caption as a whole: elements, none for a captioner that shows all it has word by word.
export function ownView(job, { extras, times }) {
  const parts = [];
  if (extras.candidates) parts.push(heading("Captions that competed"), paragraph("Several captioners wrote. The caption that fits the film best, and that they all find likely, won."), candidates(extras.candidates));
  if (extras.key_frame && extras.default_key_frame) parts.push(heading("Watched twice"), paragraph(secondLook(extras)), steps(job, extras, times));
  if (extras.members) parts.push(heading("Written together"), paragraph(`${listed(extras.members)} agreed on every word. Where it looked is shown as ${extras.members[0]} saw it.`));
  return parts;
}

// For the word that was chosen: list items. clock(seconds) writes a time; seek(moment) takes the film there.
export function wordView({ extras, words }, word, clock, seek) {
  const text = `“${words[word]}”`;
  if (extras.layers) return layers(extras.layers, word, text);
  if (extras.branch) {
    const [followed, picked] = extras.branch[word][0];
    return [
      measured(`followed things through the whole film: ${percent(followed)} of ${text}`, followed),
      measured(`looked closely at one frame: ${percent(picked)}`, picked),
    ];
  }
  if (extras.selected) return [keyFrames(extras.selected[word], text, clock, seek)];
  return [];
}

// The moments that are marked on the timeline.
export function keyMoments({ extras }, word) {
  return extras.selected ? extras.selected[word].map(({ moment }) => moment) : [];
}

function layers({ names, weights }, word, text) {
  if (!weights[word]) return [make("li", "The first word comes from the film as a whole.")];
  return names.map((_, k) => measured(`${levelOf(k, names.length)}: ${percent(weights[word][k])} of ${text}`, weights[word][k]));
}

// Layers are told from the one nearest the picture to the one nearest the meaning.
function levelOf(place, count) {
  if (place === 0) return "fine detail, edges and texture";
  return place === count - 1 ? "whole things" : count > 3 ? `shapes and parts, level ${place}` : "shapes and parts";
}

function keyFrames(selected, text, clock, seek) {
  const item = make("li", `For ${text} it read closely the frame${selected.length > 1 ? "s" : ""} at `);
  selected.forEach(({ moment, time }, k) => {
    const button = make("button", clock(time), { type: "button", class: "inline" });
    button.onclick = () => seek(moment);
    item.append(k ? (k === selected.length - 1 ? " and " : ", ") : "", button);
  });
  item.append(", which are ringed on the timeline.");
  return item;
}

function candidates(all) {
  const list = make("ol", undefined, { class: "candidates", "aria-label": "Captions that competed, the best first" });
  const [low, high] = [Math.min(...all.map(({ merit }) => merit)), Math.max(...all.map(({ merit }) => merit))];
  const share = (merit) => (high > low ? (merit - low) / (high - low) : 1);
  list.append(...all.slice(0, MOST_CANDIDATES).map(({ text, captioner, merit }) => measured(`${text}`, 0.05 + 0.95 * share(merit), `${captioner}: ${fit(share(merit))}`)));
  if (all.length > MOST_CANDIDATES) list.append(make("li", `and ${all.length - MOST_CANDIDATES} that fit less`, { class: "quiet" }));
  return list;
}

function fit(share) {
  if (share === 1) return "won";
  return share > 0.8 ? "nearly as good" : share > 0.4 ? "fits less" : "fits least";
}

function secondLook({ step_1: first, step_2: second }) {
  const again = "It first writes from the middle of the film, then finds the frame that matters most and writes again from there.";
  return first === second ? `${again} This time both say the same.` : `${again} What changed is marked.`;
}

function steps(job, extras, times) {
  const both = make("div", undefined, { class: "steps" });
  const [first, second] = [extras.step_1 ?? "", extras.step_2 ?? ""];
  both.append(
    step(job, times, extras.default_key_frame, "First look, from the middle", markDifferences(first, second)),
    step(job, times, extras.key_frame, "Second look, from the frame it found", markDifferences(second, first)),
  );
  return both;
}

function step(job, times, { moment, time }, title, said) {
  const clock = clockFor(job.media?.duration || 0);
  const figure = make("figure");
  const image = make("img", undefined, { src: frameUrl(job.id, frameOf(job.sampled, times[moment])), alt: `The frame at ${clock(time)}`, loading: "lazy" });
  const caption = make("figcaption", `${title} (${clock(time)}): `);
  caption.append(...said);
  figure.append(image, caption);
  return figure;
}

// The sampled frame nearest the middle of a moment, of those inside it where there are any.
export function frameOf(sampled, [start, end]) {
  const all = sampled.map((time, k) => ({ time, k }));
  const inside = all.filter(({ time }) => (start <= time && time < end) || time === start);
  const distance = ({ time }) => Math.abs(time - (start + end) / 2);
  return (inside.length ? inside : all).reduce((best, one) => (distance(one) < distance(best) ? one : best), all[0] ?? { k: 0, time: 0 }).k;
}

function measured(text, share, aside) {
  const line = make("li");
  line.append(make("meter", undefined, { min: 0, max: 1, value: share.toFixed(3), "aria-label": aside ? `${text}: how well it fits` : text }), make("span", text));
  if (aside) line.append(make("span", aside, { class: "quiet" }));
  return line;
}

const listed = (names) => (names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`);
const heading = (text) => make("h3", text);
const paragraph = (text) => make("p", text, { class: "quiet" });
