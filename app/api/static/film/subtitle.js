// The caption on the film, a living subtitle: content words light up as the film reaches their moments, and the lit word's heat lies on the film.

import { make, spaceBetween } from "../text.js";
import { placesAt, strengthAt } from "./evidence.js";
import { drawHeat } from "./heat.js";

const HOVER_MS = 90; // a pointer that only passes by chooses nothing
const HOLD = 0.15; // by so much a word must be stronger than the lit one to take its place
const LEAST = 0.2; // of its strength, below which no word is lit by its moment
const TURN_SECONDS = 1.4; // that each of the words which are there all along is lit

export class Subtitle {
  // elements: caption, heat (a canvas), chip (what is looked for). told: chosen(k), preview(k or null), lit(k, isPinned).
  constructor(elements, told) {
    Object.assign(this, elements, { told, look: "heat" }); // or "spotlight", "none"
    new ResizeObserver(() => this.paint()).observe(this.heat);
    this.clear();
  }

  // Nothing to point at: the caption as plain text.
  clear(text = "") {
    [this.evidence, this.pinned, this.previewed, this.lit, this.seconds] = [null, -1, -1, -1, 0];
    this.buttons = new Map();
    this.caption.replaceChildren(text);
    for (const name of ["role", "aria-label"]) this.caption.removeAttribute(name);
    this.heat.hidden = true;
    this.chip.hidden = true;
  }

  show(evidence, clock) {
    this.clear();
    Object.assign(this, { evidence, clock });
    this.content = evidence.words.map((_, k) => k).filter((k) => evidence.words[k].isContent);
    this.caption.setAttribute("role", "toolbar");
    this.caption.setAttribute("aria-label", "Caption: its content words");
    this.caption.replaceChildren(...evidence.words.flatMap((word, k, words) => [k ? spaceBetween(words[k - 1].text, word.text) : "", word.isContent ? this.button(word, k) : make("span", word.text)]));
    this.stop(this.content[0]);
    this.caption.onkeydown = (event) => this.step(event);
    this.moved(0);
  }

  button({ text }, word) {
    const button = make("button", text, { type: "button", class: "word", "aria-pressed": "false" });
    button.onclick = () => this.told.chosen(word);
    button.onpointerenter = (event) => {
      if (event.pointerType !== "touch") this.hovering = setTimeout(() => this.told.preview(word), HOVER_MS);
    };
    button.onpointerleave = () => { clearTimeout(this.hovering); this.told.preview(null); };
    this.buttons.set(word, button);
    return button;
  }

  // words: [word, how many of the others say it].
  doubt(words, others) {
    const counts = new Map(words);
    for (const [k, button] of this.buttons) {
      const count = counts.get(this.evidence.words[k].text);
      button.classList.toggle("is-doubted", count !== undefined);
      button.title = count === undefined ? "" : `${count || "None"} of ${others} other captioners ${count === 1 ? "says" : "say"} this`;
    }
  }

  // One word is the tab stop, and arrows go to the next content word.
  stop(word) {
    for (const [k, button] of this.buttons) button.tabIndex = k === word ? 0 : -1;
  }

  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const at = this.content.findIndex((word) => this.buttons.get(word) === document.activeElement);
    const word = this.content[Math.max(0, Math.min(at + by, this.content.length - 1))];
    this.buttons.get(word).focus();
    this.told.chosen(word);
  }

  // The content word that stands so many places after the one on show.
  neighbour(by) {
    if (!this.content?.length) return -1;
    const at = this.content.indexOf(this.shown);
    return this.content[at < 0 ? 0 : (at + by + this.content.length) % this.content.length];
  }

  get shown() {
    return this.previewed >= 0 ? this.previewed : this.pinned >= 0 ? this.pinned : this.lit;
  }

  pin(word) {
    this.pinned = word;
    if (word >= 0) this.stop(word);
    this.light();
  }

  preview(word) {
    this.previewed = word ?? -1;
    this.light();
  }

  moved(seconds) {
    this.seconds = seconds;
    if (!this.evidence) return;
    this.lit = this.readAt(seconds);
    this.light();
  }

  // The word whose moment it is; where it is none's, those that are there all along take turns.
  readAt(seconds) {
    const { words, moments } = this.evidence;
    const strengths = new Map(this.content.filter((k) => words[k].moment !== null).map((k) => [k, strengthAt(words[k], moments, seconds)]));
    const best = [...strengths].reduce((most, one) => (one[1] > most[1] ? one : most), [-1, LEAST]);
    if (best[0] >= 0) return (strengths.get(this.lit) || 0) > LEAST && strengths.get(this.lit) + HOLD > best[1] ? this.lit : best[0];
    const steady = this.content.filter((k) => words[k].moment === null);
    return steady.length ? steady[Math.floor(seconds / TURN_SECONDS) % steady.length] : -1;
  }

  light() {
    if (!this.evidence) return;
    const { words, moments } = this.evidence;
    for (const [k, button] of this.buttons) {
      button.classList.toggle("is-lit", k === this.shown);
      button.setAttribute("aria-pressed", String(k === this.pinned));
      button.style.setProperty("--now", words[k].moment === null ? "0.4" : strengthAt(words[k], moments, this.seconds).toFixed(2));
    }
    if (this.shown !== this.reported) this.told.lit(this.reported = this.shown, this.pinned >= 0);
    this.paint();
  }

  whenOf({ moment }) {
    return moment === null ? "all along" : this.clock(this.evidence.moments[moment].sought);
  }

  as(look) {
    this.look = look;
    this.paint();
  }

  paint() {
    const { evidence, shown } = this;
    const word = evidence?.words[shown];
    const places = word && this.look !== "none" ? placesAt(word, evidence, this.seconds) : null;
    this.heat.hidden = !places;
    this.chip.hidden = !word;
    if (word) this.chip.replaceChildren("looking for ", make("b", word.text), ` · ${this.whenOf(word)}${word.isPlaceless ? " · in no one place" : ""}`);
    if (!places) return;
    const strength = word.moment === null ? 0.8 : 0.3 + 0.7 * strengthAt(word, evidence.moments, this.seconds);
    drawHeat(this.heat, evidence.spatial, places, this.look, strength);
    this.heat.setAttribute("aria-label", `Where “${word.text}” is seen`);
  }
}
