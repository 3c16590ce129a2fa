// What explains a caption beside its two maps: parts of "extras", each drawn by its kind (docs/api.md lists the kinds).

import { clockFor, make, percent } from "../text.js";
import { frameUrl } from "../jobs/server.js";
import { markDifferences } from "./comparison.js";
import { frameOf } from "./evidence.js";

const MOST_ROWS = 8;

// For the caption as a whole: elements, none for a captioner that shows all it has word by word.
export function captionView(job, { extras, times }) {
  return extras.filter((part) => part.caption?.length && CAPTION_VIEWS[part.kind]).flatMap((part) => CAPTION_VIEWS[part.kind](part, job, times));
}

const CAPTION_VIEWS = {
  table: (part) => [heading(part.title), paragraph(part.note), rowList(part)],
  moments: (part, job, times) => [heading(part.title), paragraph(`${part.note}${compared(part.caption)}`), momentFigures(job, part.caption, times)],
  text: (part) => [heading(part.title), paragraph(part.caption)],
};

// For the word that was chosen: list items. clock(seconds) writes a time; seek(moment) takes the film there.
export function wordView({ extras, words }, word, clock, seek) {
  const text = `“${words[word]}”`;
  return extras.filter((part) => part.words && WORD_VIEWS[part.kind]).flatMap((part) => WORD_VIEWS[part.kind](part, part.words[word], text, clock, seek));
}

const WORD_VIEWS = {
  weights: shares,
  moments: (part, chosen, text, clock, seek) => (chosen.length ? [momentButtons(part, chosen, text, clock, seek)] : []),
  text: (_, sentence) => (sentence ? [make("li", sentence)] : []),
  table: (part, rows) => rows.map((row) => make("li", rowText(part, row))),
};

// Weights over moments and places are for the lanes and the heat to show.
function shares({ over, choices, absent }, weights, text) {
  if (over !== "choices") return [];
  if (!weights) return absent ? [make("li", absent)] : [];
  return choices.map(({ title }, k) => measured(`${title}: ${percent(weights[k])} of ${text}`, weights[k]));
}

function momentButtons({ title }, chosen, text, clock, seek) {
  const item = make("li", `${title} for ${text}: `);
  chosen.forEach(({ moment, time, end, text: said }, k) => {
    const when = whenOf(clock, time, end);
    const button = make("button", said ? `${said} (${when})` : when, { type: "button", class: "inline" });
    button.onclick = () => seek(moment);
    item.append(k ? (k === chosen.length - 1 ? " and " : ", ") : "", button);
  });
  return item;
}

function rowList(part) {
  const list = make("ol", undefined, { class: "candidates", "aria-label": `${part.title}, the best first` });
  const all = part.caption.map((row) => measureOf(part, row));
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const share = (measure) => (high > low ? (measure - low) / (high - low) : 1);
  list.append(...part.caption.slice(0, MOST_ROWS).map((row, k) => measured(sentenceOf(part, row), 0.05 + 0.95 * share(all[k]), `${asideOf(part, row)}: ${rank(share(all[k]))}`)));
  if (part.caption.length > MOST_ROWS) list.append(make("li", `and ${part.caption.length - MOST_ROWS} that fit less`, { class: "quiet" }));
  return list;
}

const cells = (part, row, role) => part.columns.filter((column) => column.role === role).map(({ name }) => row[name]).filter((value) => value !== null && value !== undefined);
const measureOf = (part, row) => Number(cells(part, row, "measure")[0] ?? 0);
const sentenceOf = (part, row) => cells(part, row, "text").join(" ");
const asideOf = (part, row) => cells(part, row, "aside").filter((value) => typeof value === "string").join(", ");
const rowText = (part, row) => [sentenceOf(part, row), asideOf(part, row)].filter(Boolean).join(", ");

function rank(share) {
  if (share === 1) return "won";
  return share > 0.8 ? "nearly as good" : share > 0.4 ? "fits less" : "fits least";
}

// Of two captions that were written one after the other.
function compared([first, second, ...more]) {
  if (more.length || !first?.text || !second?.text) return "";
  return first.text === second.text ? " This time both say the same." : " What changed is marked.";
}

function momentFigures(job, chosen, times) {
  const all = make("div", undefined, { class: "steps" });
  const other = chosen.length === 2 && chosen.every(({ text }) => text) ? (k) => chosen[1 - k].text : (k) => chosen[k].text || "";
  all.append(...chosen.map((moment, k) => momentFigure(job, times, moment, markDifferences(moment.text || "", other(k)))));
  return all;
}

// With the span that was chosen, or the time of the frame that is shown.
function momentFigure(job, times, { moment, time, end, title, box }, text) {
  const clock = clockFor(job.media?.duration || 0);
  const figure = make("figure");
  const frame = frameOf(job.sampled, times[moment]);
  const shown = job.sampled[frame] ?? time;
  const image = make("img", undefined, { src: frameUrl(job.id, frame), alt: `The frame at ${clock(shown)}`, loading: "lazy" });
  const caption = make("figcaption", `${title || "Chosen"} (${whenOf(clock, end ? time : shown, end)}): `);
  caption.append(...text);
  const picture = make("span", undefined, { class: "boxed" });
  picture.append(image);
  if (box) {
    const outline = make("span", undefined, { class: "box" });
    const [left, top, right, bottom] = box.map((share) => 100 * share);
    Object.assign(outline.style, { left: `${left}%`, top: `${top}%`, width: `${right - left}%`, height: `${bottom - top}%` });
    picture.append(outline);
  }
  figure.append(picture, caption);
  return figure;
}

function measured(text, share, aside) {
  const line = make("li");
  line.append(make("meter", undefined, { min: 0, max: 1, value: share.toFixed(3), "aria-label": aside ? `${text}: how well it fits` : text }), make("span", text));
  if (aside) line.append(make("span", aside, { class: "quiet" }));
  return line;
}

const whenOf = (clock, time, end) => (end ? `${clock(time)} to ${clock(end)}` : clock(time));
const heading = (text) => make("h3", text);
const paragraph = (text) => make("p", text, { class: "quiet" });
