// Sends films, two at a time, in the order in which they were given; and finds films in what was dropped or pasted.

import { sendFilm, isGood } from "./server.js";

const AT_ONCE = 2;

export class Uploads {
  // films: the list that shows how far each is; accepted(film): one has become a job.
  constructor(films, accepted) {
    [this.films, this.accepted] = [films, accepted];
    this.waiting = [];
    this.sending = new Map(); // film → what stops it
    window.addEventListener("beforeunload", (event) => { if (this.isBusy) event.preventDefault(); });
  }

  get isBusy() {
    return this.waiting.length + this.sending.size > 0;
  }

  // what: {file} or {url}; options: fields of the form.
  add(what, options) {
    const name = what.file ? what.file.name : nameOf(what.url);
    const local = what.file && !what.file.type.startsWith("image/") ? URL.createObjectURL(what.file) : null;
    const film = this.films.add({ ...what, name, local, options, state: "unsent" });
    this.waiting.push(film);
    this.next();
    return film;
  }

  again(film, options) {
    this.films.update(film, { state: "unsent", part: 0, problem: null, options });
    this.waiting.push(film);
    this.next();
  }

  // Whether the film had not been sent yet.
  stop(film) {
    const place = this.waiting.indexOf(film);
    if (place >= 0) this.waiting.splice(place, 1);
    this.sending.get(film)?.();
    return place >= 0 || this.sending.has(film);
  }

  next() {
    while (this.sending.size < AT_ONCE && this.waiting.length) this.send(this.waiting.shift());
  }

  async send(film) {
    this.films.update(film, { state: "sending", part: 0 });
    const { answer, stop } = sendFilm(film, film.options, (part) => this.films.update(film, { part }));
    this.sending.set(film, stop);
    const found = await answer;
    this.sending.delete(film);
    this.next();
    if (isGood(found) && found.body?.id) {
      this.films.update(film, { id: found.body.id, state: found.body.state, part: 0 });
      this.accepted(film);
    } else if (found.body) {
      this.films.update(film, { state: "refused", problem: found.body });
      this.accepted(film);
    }
  }
}

function nameOf(url) {
  try {
    const { hostname, pathname } = new URL(url);
    return decodeURIComponent(pathname.split("/").filter(Boolean).at(-1) || hostname);
  } catch {
    return url;
  }
}

// Films in what was dropped or pasted: {files, urls, text}; text is what is neither.
export function filmsIn(transfer) {
  const files = [...(transfer?.files || [])];
  if (files.length) return { files, urls: [], text: "" };
  const text = (transfer?.getData("text/uri-list") || transfer?.getData("text/plain") || "").trim();
  const urls = text.split(/\s+/).filter(isAddress);
  return { files: [], urls, text: urls.length ? "" : text };
}

const isAddress = (text) => /^https?:\/\/[^\s/]+/i.test(text);

// What was typed as a link, with https:// where that was left out; null where it is none.
export function asAddress(typed) {
  const text = typed.trim();
  if (isAddress(text)) return text;
  return /^[\w-]+(\.[\w-]+)+\/\S+$/.test(text) ? `https://${text}` : null;
}
