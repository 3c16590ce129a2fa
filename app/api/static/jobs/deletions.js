// Deletes what was sent, from the service and from the list, a few seconds later, so that it can be taken back. What was opened by a link is another's: it leaves the list alone.

import { cancelJob, isGood } from "./server.js";

const UNDO_MS = 6000;

export class Deletions {
  // elements: box, what, undo (a button). films: the list; failed(problem): a film could not be deleted, and is on the list again.
  constructor(elements, films, failed) {
    Object.assign(this, elements, { films, failed, waiting: [] });
    this.undo.addEventListener("click", () => this.takeBack());
    window.addEventListener("pagehide", () => this.finish());
  }

  // A film, with what others have captioned of it.
  add(film) {
    this.begin([film, ...(film.id && !film.root ? this.films.sameFilm(film).filter((other) => other !== film) : [])], film.name || "The video");
  }

  addAll() {
    const all = this.films.films.filter(({ isLinked }) => !isLinked);
    if (all.length) this.begin(all, all.length === 1 ? "1 video" : `All ${all.length} videos`);
  }

  begin(films, name) {
    this.finish();
    this.waiting = films;
    films.forEach((film) => this.films.remove(film));
    this.what.textContent = films[0].isLinked ? `${name} is off this list.` : `${name} will be deleted.`;
    this.box.hidden = false;
    this.timer = setTimeout(() => this.finish(), UNDO_MS);
  }

  takeBack() {
    clearTimeout(this.timer);
    this.box.hidden = true;
    this.waiting.splice(0).forEach((film) => this.films.restore(film));
  }

  finish() {
    clearTimeout(this.timer);
    this.box.hidden = true;
    this.waiting.splice(0).forEach((film) => this.erase(film));
  }

  async erase(film) {
    if (film.local) URL.revokeObjectURL(film.local);
    if (!film.id || film.isLinked) return;
    const answer = await cancelJob(film.id);
    if (isGood(answer) || answer.status === 404) return;
    this.films.restore(film);
    this.failed(answer.body);
  }
}
