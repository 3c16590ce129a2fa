// The keys of the page: those that people know from YouTube, and its own for words and places; ? lists them.

import { make } from "../text.js";

const [STEP, TENTH] = [10, 0.1]; // seconds that j and l go, and the share of the film that a digit stands for

// [key or keys, what is said of it, what it does to the film on show].
const KEYS = [
  [[" ", "k"], "Read it to me, or pause", (view) => view.player.toggle()],
  [["ArrowUp", "ArrowDown"], "The word before, the next", (view, key) => view.choose(view.subtitle.neighbour(key === "ArrowUp" ? -1 : 1))],
  [["ArrowLeft", "ArrowRight"], "The moment before, the next", (view, key) => view.goToMoment(key === "ArrowLeft" ? -1 : 1)],
  [[",", "."], "A frame back, a frame on", (view, key) => view.player.step(key === "," ? -1 : 1)],
  [["j", "l"], "Ten seconds back, ten on", (view, key) => view.player.seek(view.player.at + (key === "j" ? -STEP : STEP))],
  [["0", "9"], "To that tenth of the video", (view, key) => view.player.seek(Number(key) * TENTH * view.player.length)],
  [["<", ">"], "Slower, faster", (view, key) => view.player.setRate(view.player.rate + (key === "<" ? -0.25 : 0.25))],
  [["r"], "Loop", (view) => view.player.setLoop(!view.player.isLooping)],
  [["h"], "Heat", (view) => view.setLook("heat")],
  [["s"], "Spotlight", (view) => view.setLook("spotlight")],
  [["m"], "Sound", (view) => view.player.mute()],
  [["f"], "Full screen", (view) => view.player.fullScreen()],
  [["Escape"], "Let go of the word", (view) => view.letGo()],
];
const NAMES = { " ": "Space", ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", Escape: "Esc" };

// more: further keys in the same form, of things that are not the film's. sheet: a dialog with a list.
export function listenToKeys(view, sheet, more) {
  const keys = [...KEYS, ...more, [["?"], "This list", () => sheet.showModal()]];
  sheet.querySelector("dl").replaceChildren(...keys.flatMap(([names, what]) => {
    const term = make("dt");
    term.append(...names.map((name) => make("kbd", NAMES[name] || name)));
    return [term, make("dd", what)];
  }));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") || !isFree(event)) return;
    const key = /^\d$/.test(event.key) ? "0" : event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const found = keys.find(([names]) => names.includes(key));
    if (!found || (view.$("film").hidden && key !== "?")) return;
    event.preventDefault();
    found[2](view, event.key.length === 1 ? event.key.toLowerCase() : event.key);
  });
}

// Whether the focus is on nothing that has a use for the key itself.
function isFree({ target, key }) {
  if (target.matches?.("input:not([type=range]), select, textarea")) return false;
  if (target.matches?.("input[type=range], summary") || target.closest?.(".chapters-list")) return key.length === 1 && key !== " ";
  return !(key === " " && target.matches?.("button, a"));
}
