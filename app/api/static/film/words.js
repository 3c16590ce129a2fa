// The caption, word by word: a word that is pointed at, focused or tapped takes the film to its moment and lays its heat over it.

import { SPREAD, make, percent } from "../text.js";
import { frameOf, keyMoments } from "./explanations.js";
import { drawHeat, seesPart } from "./heat.js";
import { rove } from "./timeline.js";

const HOVER_MS = 90; // a pointer that only passes by chooses nothing
const TOUR_MS = 1300;
const EMPTY = new Set(["with", "from", "into", "over", "that", "this", "their", "through", "near", "next", "there", "while", "some", "front", "around"]);
const NEAR = 0.08; // seconds within which the film still stands at the moment that was chosen

export class Words {
  // elements: caption, looked (a line about the word), legend, heat (a canvas). player, timeline; told: word(k).
  constructor(elements, player, timeline, told) {
    Object.assign(this, elements, { player, timeline, told });
    new ResizeObserver(() => this.paint()).observe(this.heat);
    this.clear();
  }

  // Nothing to point at: the caption as plain text.
  clear(text = "") {
    this.stopTour();
    [this.attention, this.word, this.moment, this.sought] = [null, -1, -1, null];
    this.caption.replaceChildren(text);
    for (const name of ["role", "aria-label"]) this.caption.removeAttribute(name);
    this.caption.onkeydown = null;
    this.looked.textContent = "";
    this.legend.hidden = true;
    this.heat.hidden = true;
  }

  // attention: a document of the service; sampled: seconds of its frames; scored: words with their logprob, if any.
  show(attention, sampled, scored) {
    this.clear();
    [this.attention, this.sampled, this.scored] = [attention, sampled, scored];
    this.parts = attention.parts || attention.times; // of the clip, that the moments stand for
    this.buttons = attention.words.map((text, word) => this.button(text, word));
    this.caption.setAttribute("role", "toolbar");
    this.caption.setAttribute("aria-label", "Caption, word by word");
    this.caption.replaceChildren(...this.buttons);
    this.stop = rove(this.caption, this.buttons, (word) => this.byHand(word));
    this.isHeatOn = true;
    this.choose(this.telling());
  }

  button(text, word) {
    const button = make("button", text, { type: "button", class: "word" });
    button.onclick = () => this.byHand(word);
    button.onpointerenter = (event) => {
      if (event.pointerType !== "touch") this.hovering = setTimeout(() => this.byHand(word), HOVER_MS);
    };
    button.onpointerleave = () => clearTimeout(this.hovering);
    return button;
  }

  byHand(word) {
    this.stopTour();
    this.player.pause();
    if (word !== this.word || !this.isHeatOn) this.choose(word);
    else this.goTo(this.strongest());
  }

  // "a" looks nowhere in particular: begin with the telling word that says most about when.
  telling() {
    const { words, entropy, spread } = this.attention;
    const long = words.map((_, k) => k).filter((k) => words[k].length > 2 && !EMPTY.has(words[k]) && this.attention.temporal[k]);
    const clear = long.filter((k) => !spread?.[k]);
    const least = (all) => all.reduce((best, k) => ((entropy?.[k] ?? 1) < (entropy?.[best] ?? 1) ? k : best), all[0]);
    return clear.length ? least(clear) : long[0] ?? 0;
  }

  choose(word) {
    this.word = word;
    this.isHeatOn = true;
    const weights = this.attention.temporal[word];
    this.buttons.forEach((button, k) => button.setAttribute("aria-pressed", String(k === word)));
    if (!this.caption.contains(document.activeElement)) this.stop(word);
    this.timeline.weigh(weights, keyMoments(this.attention, word), Boolean(this.attention.spread?.[word]));
    this.told.word(word);
    this.goTo(this.strongest());
  }

  // The moment that it looked at most, of its key frames where it has some.
  strongest() {
    const weights = this.attention.temporal[this.word] || [0];
    const keys = keyMoments(this.attention, this.word);
    const among = keys.length ? keys : weights.map((_, k) => k);
    return among.reduce((best, k) => (weights[k] > weights[best] ? k : best), among[0]);
  }

  goTo(moment, isAsked = false) {
    this.moment = moment;
    const [start, end] = this.parts[moment];
    const frame = this.sampled[frameOf(this.sampled, this.attention.times[moment])];
    this.sought = start <= frame && frame <= end ? frame : (start + end) / 2;
    this.player.seek(this.sought);
    this.looked.textContent = this.label(isAsked);
    this.showHeat();
  }

  // The film stands elsewhere: the heat is that of the moment there.
  moved(seconds) {
    if (!this.attention || this.word < 0) return;
    if (this.sought === null || Math.abs(seconds - this.sought) > NEAR) {
      this.sought = null;
      const weights = this.attention.temporal[this.word];
      const here = this.parts.map((_, k) => k).filter((k) => this.parts[k][0] <= seconds && seconds < this.parts[k][1]);
      const moment = here.reduce((best, k) => (best < 0 || (weights?.[k] || 0) > (weights?.[best] || 0) ? k : best), -1);
      if (moment !== this.moment) {
        this.moment = moment;
        this.showHeat();
      }
    }
    this.light();
  }

  // While the film plays, each word is underlined as much as it looks at what is on show.
  light() {
    this.caption.classList.toggle("is-playing", this.player.isPlaying);
    this.buttons.forEach((button, word) => {
      const weights = this.attention.temporal[word];
      const top = Math.max(...(weights || [0]), 1e-9);
      button.style.setProperty("--now", ((weights?.[this.moment] || 0) / top).toFixed(2));
    });
  }

  toggleHeat() {
    this.isHeatOn = !this.isHeatOn;
    this.stopTour();
    this.showHeat();
    return this.isHeatOn;
  }

  showHeat() {
    this.timeline.press(this.moment);
    this.legend.hidden = !this.attention?.spatial || !this.isHeatOn;
    if (this.attention?.spatial) this.legend.querySelector(".legend-text").textContent = this.legendText();
    this.paint();
  }

  paint() {
    const spatial = this.attention?.spatial;
    const weights = this.moment < 0 ? null : spatial?.weights[this.word]?.[this.moment];
    this.heat.hidden = !weights || !this.isHeatOn;
    if (this.heat.hidden) return;
    drawHeat(this.heat, spatial, weights, spatial.boxes?.[this.moment]);
    const over = this.attention.temporal[this.word];
    const share = over ? over[this.moment] / Math.max(...over, 1e-9) : 1;
    this.heat.style.opacity = String(0.25 + 0.75 * share);
    this.heat.setAttribute("aria-label", `The place of “${this.attention.words[this.word]}”, over the film`);
  }

  label(isAsked) {
    const { words, temporal, spread } = this.attention;
    const [text, weights, isSpread] = [words[this.word], temporal[this.word], spread?.[this.word]];
    const [start, end] = this.parts[this.moment];
    const between = this.timeline.between(start, end);
    const when = between.includes(" to ") ? `from ${between}` : `at ${between}`;
    const namesNoMoment = isSpread && !isAsked && !keyMoments(this.attention, this.word).length;
    if (!weights) return `“${text}” is of no moment in particular.`;
    if (namesNoMoment) return `“${text}” is ${SPREAD}. Shown: ${when}.`;
    const share = `“${text}” comes ${when}, with ${percent(weights[this.moment])} of its weight`;
    return isSpread ? `${share}, but it is ${SPREAD}.` : `${share}.${this.sureness()}`;
  }

  sureness() {
    const scored = this.scored?.[this.word];
    return scored ? ` It was ${percent(Math.exp(scored.logprob))} sure of this word.` : "";
  }

  legendText() {
    const text = `The place of “${this.attention.words[this.word]}”`;
    if (this.attention.spatial.kind === "boxes") return `${text}: the brighter a box, the more that thing counted`;
    return seesPart(this.attention.spatial) ? `${text}; it saw only what is inside the dashed line` : text;
  }

  // Word by word, once; whatever is done by hand ends it.
  tour(over) {
    this.stopTour();
    const words = this.attention.words.map((_, k) => k).filter((k) => this.attention.temporal[k]);
    let place = 0;
    const step = () => {
      if (place >= words.length) return void (this.stopTour(), this.choose(this.telling()));
      this.choose(words[place]);
      place += 1;
      this.touring = setTimeout(step, TOUR_MS);
      return undefined;
    };
    this.tourOver = over;
    this.player.pause();
    step();
  }

  get isTouring() {
    return Boolean(this.touring);
  }

  stopTour() {
    clearTimeout(this.hovering);
    clearTimeout(this.touring);
    this.touring = 0;
    this.tourOver?.();
    this.tourOver = null;
  }
}
