// The time of the film from left to right: its frames, above them the weights of the chosen word, and where the film stands.

import { clockFor, make, percent } from "../text.js";

const LEAST_RANGE = 2; // a bar of full height has at least two even shares, as heat has
const LEAST_WIDTH = 0.8; // of a bar, in percent of the timeline

// One of many buttons is a tab stop, and arrows go from one to the next. chosen(k) is told of each that gets the focus.
export function rove(container, buttons, chosen) {
  const stop = (k) => buttons.forEach((button, other) => { button.tabIndex = other === k ? 0 : -1; });
  stop(0);
  buttons.forEach((button, k) => button.addEventListener("focus", () => { stop(k); chosen(k); }));
  container.onkeydown = (event) => {
    const from = buttons.indexOf(document.activeElement);
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, ArrowUp: from - 1, ArrowDown: from + 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (from < 0 || to === undefined) return;
    event.preventDefault();
    buttons[Math.max(0, Math.min(to, buttons.length - 1))].focus();
  };
  return stop;
}

export class Timeline {
  // elements: box, strip, bars, place (a range), head, first, last, even. told: seek(seconds), moment(k), leave().
  constructor(elements, told) {
    Object.assign(this, elements);
    this.told = told;
    [this.span, this.buttons, this.clock] = [[0, 1], [], clockFor(0)];
    this.place.addEventListener("input", () => told.seek(Number(this.place.value)));
    this.strip.addEventListener("pointerdown", (event) => {
      const { left, width } = this.strip.getBoundingClientRect();
      told.seek(this.span[0] + (this.span[1] - this.span[0]) * ((event.clientX - left) / width));
    });
  }

  // span: first and last second; frames: {time, url}, rising; parts: [start, end] of each moment, or none; length: the whole film's.
  show(span, frames, parts, length) {
    this.span = span[1] > span[0] ? span : [span[0], span[0] + 1];
    this.parts = parts;
    this.clock = clockFor(Math.max(length, span[1]));
    Object.assign(this.place, { min: this.span[0], max: this.span[1], step: "any" });
    this.first.textContent = this.clock(this.span[0]);
    this.last.textContent = this.clock(this.span[1]);
    this.strip.replaceChildren(...frames.map((frame, k) => this.thumbnail(frames, k)));
    this.buttons = parts.map((part) => this.bar(part));
    this.bars.replaceChildren(this.even, ...this.buttons);
    this.bars.hidden = !parts.length;
    this.stop = rove(this.bars, this.buttons, () => {});
    this.moved(this.span[0]);
  }

  // From half-way behind the frame before it to half-way before the next; film.css repeats one that stands alone.
  thumbnail(frames, k) {
    const begin = k ? (frames[k - 1].time + frames[k].time) / 2 : this.span[0];
    const end = k + 1 < frames.length ? (frames[k].time + frames[k + 1].time) / 2 : this.span[1];
    const picture = make("span");
    picture.style.backgroundImage = `url("${frames[k].url}")`;
    return this.put(picture, [begin, end]);
  }

  bar(part) {
    const button = make("button", undefined, { type: "button", class: "bar" });
    button.append(make("span"));
    button.onclick = () => this.told.moment(this.buttons.indexOf(button));
    return this.put(button, part, LEAST_WIDTH);
  }

  put(element, [start, end], least = 0) {
    element.style.left = `${100 * this.share(start)}%`;
    element.style.width = `${Math.max(least, 100 * (this.share(end) - this.share(start)))}%`;
    return element;
  }

  share(seconds) {
    return Math.min(1, Math.max(0, (seconds - this.span[0]) / (this.span[1] - this.span[0])));
  }

  // A word's weights over the moments; keys: moments that it read whatever their weight; isSpread: no moment stands out.
  weigh(weights, keys, isSpread) {
    const even = 1 / Math.max(1, this.buttons.length);
    const top = Math.max(...(weights || [0]), Math.min(1, LEAST_RANGE * even));
    this.bars.classList.toggle("spread", isSpread);
    this.even.hidden = this.buttons.length < 2 || !weights;
    this.even.style.bottom = `${(100 * even) / top}%`;
    this.buttons.forEach((button, k) => {
      const weight = weights?.[k] || 0;
      button.firstChild.style.height = `${(100 * weight) / top}%`;
      button.classList.toggle("strong", weight > even * 1.15 && !isSpread);
      button.classList.toggle("key", keys.includes(k));
      const [start, end] = this.parts[k];
      button.setAttribute("aria-label", `${this.between(start, end)}: ${percent(weight)} of the word's attention${keys.includes(k) ? ", a key frame" : ""}`);
      button.title = `${this.between(start, end)}: ${percent(weight)}`;
    });
  }

  between(start, end) {
    const [first, last] = [this.clock(start), this.clock(end)];
    return first === last ? first : `${first} to ${last}`;
  }

  press(moment) {
    this.buttons.forEach((button, k) => button.setAttribute("aria-pressed", String(k === moment)));
    if (moment >= 0 && this.buttons[moment] && !this.bars.contains(document.activeElement)) this.stop(moment);
  }

  moved(seconds) {
    this.place.value = seconds;
    this.place.setAttribute("aria-valuetext", this.clock(seconds));
    this.head.style.left = `${100 * this.share(seconds)}%`;
  }
}
