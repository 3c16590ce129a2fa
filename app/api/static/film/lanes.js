// The words over time, like a piano roll: a lane per content word, its cells the moments; under them the film's frames, and through all the playhead.

import { clockFor, make } from "../text.js";

const DRAG_PX = 6; // a pointer that moves less has clicked
const UNSEEN = 0.5; // seconds without evidence that are told of
const HOVER_MS = 90; // a pointer that only passes by chooses nothing

export class Lanes {
  // elements: box, rows, strip, band, head, place (a range), first, last, part (a line).
  // told: seek(seconds), word(k, seconds or null), preview(k or null, seconds), loop([start, end]).
  constructor(elements, told) {
    Object.assign(this, elements, { told });
    [this.span, this.lanes, this.clock] = [[0, 1], [], clockFor(0)];
    this.place.addEventListener("input", () => told.seek(Number(this.place.value)));
    for (const kind of ["pointerdown", "pointermove", "pointerup", "pointercancel", "pointerleave"]) this.box.addEventListener(kind, (event) => this[kind](event));
  }

  // span: first and last second of the lanes; frames: {time, url, sprite}, rising; evidence: null for none; length: the whole film's.
  show(span, frames, evidence, length) {
    this.span = span[1] > span[0] ? span : [span[0], span[0] + 1];
    this.clock = clockFor(Math.max(length, span[1]));
    Object.assign(this.place, { min: 0, max: Math.max(length, this.span[1]), step: "any" });
    this.first.textContent = this.clock(0);
    this.last.textContent = length ? this.clock(Math.max(length, this.span[1])) : ""; // not known yet
    this.strip.previousElementSibling.textContent = this.isPart(length) ? this.clock(this.span[0]) : "";
    this.strip.nextElementSibling.textContent = this.isPart(length) ? this.clock(this.span[1]) : "";
    this.strip.replaceChildren(...frames.map((_, k) => this.thumbnail(frames, k)));
    this.lanes = (evidence?.words || []).flatMap((word, k) => (word.isContent ? [this.lane(word, k, evidence)] : []));
    this.rows.replaceChildren(...this.lanes.map(({ row }) => row));
    this.showPart(evidence?.moments || []);
    this.markLoop(null);
    this.moved(this.span[0]);
  }

  // A chapter's lanes have a time axis of their own above the film's.
  isPart(length) {
    return length - (this.span[1] - this.span[0]) > UNSEEN;
  }

  // Of joined shots that look alike the longest was captioned.
  showPart(moments) {
    const [start, end] = this.span;
    const [from, to] = [moments[0]?.start ?? start, moments.at(-1)?.end ?? end];
    this.part.hidden = from - start < UNSEEN && end - to < UNSEEN;
    this.part.textContent = `Captioned from ${this.clock(from)} to ${this.clock(to)}; the shots beside it look alike.`;
  }

  lane(word, number, { moments }) {
    const row = make("div", undefined, { class: "lane" });
    const name = make("button", word.text, { type: "button", class: "lane-word", tabindex: -1 });
    const when = word.moment === null ? "all along" : this.clock(moments[word.moment].sought);
    name.setAttribute("aria-label", `${word.text}, ${word.moment === null ? "all along" : this.between(word)}`);
    name.onclick = () => this.told.word(number, null);
    const track = make("div", undefined, { class: "track", "aria-hidden": "true" });
    track.append(...moments.map((moment, k) => {
      const cell = make("span", undefined, { class: k === word.moment ? "cell is-top" : "cell" });
      cell.style.setProperty("--strength", (word.moment === null ? 0.35 * word.strengths[k] + 0.2 : word.strengths[k]).toFixed(2));
      return this.put(cell, [moment.start, moment.end]);
    }));
    row.append(name, track, make("span", when, { class: "lane-when", "aria-hidden": "true" }));
    return { row, number, name };
  }

  // From half-way behind the frame before it to half-way before the next. sprite: [k, n], the k-th of n pictures side by side in one file.
  thumbnail(frames, k) {
    const begin = k ? (frames[k - 1].time + frames[k].time) / 2 : this.span[0];
    const end = k + 1 < frames.length ? (frames[k].time + frames[k + 1].time) / 2 : this.span[1];
    const picture = make("span");
    const { url, sprite } = frames[k];
    picture.style.backgroundImage = `url("${url}")`;
    if (sprite) Object.assign(picture.style, { backgroundSize: `${100 * sprite[1]}% 100%`, backgroundPosition: `${(100 * sprite[0]) / Math.max(1, sprite[1] - 1)}% 0` });
    return this.put(picture, [begin, end]);
  }

  put(element, [start, end]) {
    element.style.left = `${100 * this.share(start)}%`;
    element.style.width = `${100 * (this.share(end) - this.share(start))}%`;
    return element;
  }

  share(seconds) {
    return Math.min(1, Math.max(0, (seconds - this.span[0]) / (this.span[1] - this.span[0])));
  }

  between({ start, end }) {
    const [first, last] = [this.clock(start), this.clock(end)];
    return first === last ? `at ${first}` : `from ${first} to ${last}`;
  }

  // ---- the pointer: over a lane it shows, a click goes there, a drag loops ----

  secondsAt({ clientX }) {
    const { left, width } = this.strip.getBoundingClientRect();
    return this.span[0] + (this.span[1] - this.span[0]) * Math.min(1, Math.max(0, (clientX - left) / width));
  }

  wordAt(event) {
    return this.lanes.find(({ row }) => row.contains(event.target))?.number ?? null;
  }

  pointerdown(event) {
    const { left, right } = this.strip.getBoundingClientRect();
    if (event.button || event.target === this.place || event.clientX < left || event.clientX > right) return;
    this.drag = { x: event.clientX, from: this.secondsAt(event), word: this.wordAt(event) };
  }

  pointermove(event) {
    if (this.drag && Math.abs(event.clientX - this.drag.x) > DRAG_PX) {
      this.box.setPointerCapture(event.pointerId);
      this.drag.part = [this.drag.from, this.secondsAt(event)].sort((a, b) => a - b);
      return void this.markLoop(this.drag.part);
    }
    if (event.pointerType === "touch" || this.drag || event.target === this.place) return undefined;
    clearTimeout(this.hovering);
    const [word, seconds, isName] = [this.wordAt(event), this.secondsAt(event), event.target.classList.contains("lane-word")];
    const isOver = word !== null || this.strip.contains(event.target);
    const show = () => { this.isHovered = isOver; this.told.preview(word, isOver && !isName ? seconds : null); };
    if (this.isHovered || !isOver) show();
    else this.hovering = setTimeout(show, HOVER_MS);
    return undefined;
  }

  pointerup(event) {
    const { drag } = this;
    this.drag = null;
    if (drag?.part) this.told.loop(drag.part);
    else if (drag && drag.word !== null) this.told.word(drag.word, this.secondsAt(event));
    else if (drag) this.told.seek(this.secondsAt(event));
  }

  pointercancel() {
    this.drag = null;
  }

  pointerleave() {
    clearTimeout(this.hovering);
    this.isHovered = false;
    if (!this.drag) this.told.preview(null, null);
  }

  markLoop(part) {
    this.band.hidden = !part;
    if (part) this.put(this.band, part);
  }

  // shown: the word whose heat is on the film; pinned: whether it was chosen.
  light(shown, isPinned) {
    for (const { row, number, name } of this.lanes) {
      row.classList.toggle("is-lit", number === shown);
      name.setAttribute("aria-pressed", String(isPinned && number === shown));
    }
  }

  moved(seconds) {
    this.place.value = seconds;
    this.place.setAttribute("aria-valuetext", this.clock(seconds));
    this.head.style.left = `${100 * this.share(seconds)}%`;
  }
}
