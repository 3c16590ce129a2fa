// The chapters of a long film, each with its frame and caption: a click goes there, a search narrows the list, files take it along.

import { clock, hasWords, make, setCurrent, sumUp } from "../text.js";
import { jobPath, segmentFrameUrl } from "../jobs/server.js";

const FILES = ["vtt", "srt", "json", "csv"];

export class Chapters {
  // elements: box, list, search, sum, found, links (an element with a link for each kind of file). chosen(number | null).
  constructor(elements, chosen) {
    Object.assign(this, elements);
    this.chosen = chosen;
    [this.segments, this.rows, this.id] = [[], [], null];
    this.search.addEventListener("input", () => this.filter());
    this.list.onkeydown = (event) => this.step(event);
  }

  open(id) {
    [this.id, this.segments, this.rows, this.current] = [id, [], [], -1];
    this.list.replaceChildren();
    this.search.value = "";
    this.sum.textContent = "";
    this.found.textContent = "";
    this.box.hidden = true;
    for (const kind of FILES) {
      const link = this.links.querySelector(`[data-kind="${kind}"]`);
      if (id) link.href = jobPath(id, `/captions.${kind}`);
    }
  }

  // Those that have been done since the last look; a film has thousands. Where another worker began anew, from there on.
  show(segments) {
    this.box.hidden = !segments?.length;
    if (!segments) return;
    const differs = this.segments.findIndex((segment, k) => !isSame(segment, segments[k]));
    const from = differs < 0 ? this.segments.length : differs;
    this.cut(from);
    segments.slice(from).forEach((segment, k) => this.append(segment, from + k));
    this.filter(from);
  }

  // One that is told of as it is done; a number that comes again counts anew.
  add(segment) {
    const number = segment.number ?? this.segments.length;
    if (number > this.segments.length || isSame(this.segments[number], segment)) return;
    this.cut(number);
    this.box.hidden = false;
    this.append(segment, number);
    this.filter(number);
  }

  cut(from) {
    this.segments.length = from;
    this.rows.splice(from).forEach((row) => row.remove());
  }

  append(segment, number) {
    this.segments.push(segment);
    const item = make("li");
    const button = make("button", undefined, { type: "button", class: "chapter" });
    const picture = make("img", undefined, { alt: "", loading: "lazy", width: 96, height: 54, src: segmentFrameUrl(this.id, number) });
    picture.onerror = () => picture.classList.add("is-gone");
    const texts = make("span", undefined, { class: "chapter-texts" });
    texts.append(make("span", `${clock(segment.start, false)} to ${clock(segment.end, false)}`, { class: "chapter-time" }), make("span", segment.caption, { class: "chapter-caption" }));
    button.append(picture, texts);
    button.onclick = () => this.chosen(number);
    button.tabIndex = number ? -1 : 0;
    item.append(button);
    this.rows.push(item);
    this.list.append(item);
  }

  step(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const shown = this.rows.filter((row) => !row.hidden).map((row) => row.firstChild);
    const next = shown[shown.indexOf(document.activeElement) + (by || 0)];
    if (!by || !next) return;
    event.preventDefault();
    this.stop(next);
    next.focus();
  }

  stop(button) {
    for (const row of this.rows) row.firstChild.tabIndex = row.firstChild === button ? 0 : -1;
  }

  // The one at which the film stands; returns whether it is another than before.
  moved(seconds) {
    const number = this.segments.findIndex(({ start, end }) => start <= seconds && seconds < end);
    if (number === this.current) return false;
    this.rows[this.current]?.firstChild.classList.remove("is-here");
    this.rows[number]?.firstChild.classList.add("is-here");
    this.current = number;
    return true;
  }

  // Which one's words are on show.
  mark(number) {
    this.rows.forEach((row, k) => setCurrent(row.firstChild, k === number));
  }

  // from: those before it are as they were.
  filter(from = 0) {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.rows.slice(from).forEach((row, k) => {
      const { caption } = this.segments[from + k];
      row.hidden = !hasWords(caption, words);
      emphasise(row.querySelector(".chapter-caption"), caption, words);
    });
    this.sum.textContent = sumUp(this.segments.map(({ caption }) => caption));
    const shown = this.rows.filter((row) => !row.hidden);
    const chapters = (count) => `${count || "no"} ${count === 1 ? "chapter" : "chapters"}`;
    this.found.textContent = words.length ? `${chapters(shown.length)} of ${this.rows.length}` : chapters(this.rows.length);
    if (shown.length && from === 0) this.stop(shown[0].firstChild);
  }
}

const isSame = (one, other) => one?.start === other?.start && one?.caption === other?.caption;

function emphasise(element, caption, words) {
  if (!words.length) return void (element.textContent = caption);
  const isHit = (part) => words.some((word) => hasWords(part, [word]));
  element.replaceChildren(...caption.split(/(\s+)/).map((part) => (part.trim() && isHit(part) ? make("mark", part) : part)));
}
