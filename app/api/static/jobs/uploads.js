// Sends films, two at a time, in the order in which they were given; and finds films in what was dropped or pasted.

import { sendFilm, isGood } from "./server.js";

const AT_ONCE = 2;
const AGAIN_MS = 3000; // after which an upload that nothing answered begins anew

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
    if (local) this.takePicture(film);
    this.next();
    return film;
  }

  // For the list, from its sender's own disk.
  takePicture(film) {
    const video = Object.assign(document.createElement("video"), { muted: true, preload: "auto", src: film.local });
    video.onloadeddata = () => { if (video.videoWidth) this.films.picture(film, video); };
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
    return this.sending.delete(film) || place >= 0;
  }

  next() {
    while (this.sending.size < AT_ONCE && this.waiting.length) this.send(this.waiting.shift());
  }

  // Until the service has answered, or the film is stopped.
  async send(film) {
    this.films.update(film, { state: "sending", part: 0, isStalled: false });
    const key = `${Date.now()} ${Math.random()}`; // however often it is sent, it becomes one job
    let found = await this.attempt(film, key);
    while (isAway(found) && this.sending.has(film)) {
      this.films.update(film, { part: 0, isStalled: true });
      await new Promise((resolve) => { setTimeout(resolve, AGAIN_MS); });
      if (this.sending.has(film)) found = await this.attempt(film, key);
    }
    const isStopped = !this.sending.delete(film);
    this.next();
    if (isStopped) return;
    const { id, state } = isGood(found) ? found.body : {};
    this.films.update(film, id ? { id, state, part: 0 } : { state: "refused", problem: found.body });
    this.accepted(film);
  }

  attempt(film, key) {
    const { answer, stop } = sendFilm(film, film.options, key, (part) => this.films.update(film, { part, isStalled: false }));
    this.sending.set(film, stop);
    return answer;
  }
}

// Nothing has answered, or the service has not noticed yet that the attempt before broke off.
const isAway = ({ status, body }) => status === 0 || ["idempotency_in_progress", "wrong_offset"].includes(body.code);

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

// What is wrong with something before it is sent, as far as its name and kind tell; null for nothing.
export function refusal({ file, url }) {
  if (file && /^(audio|text)\/|pdf|zip|msword|officedocument/.test(file.type)) return `${file.name} is no video.`;
  if (url && /\/\/([\w-]+\.)*(youtube\.com|youtu\.be|vimeo\.com|tiktok\.com)\//i.test(url)) return "That is the link of a page with a video on it. Save the video and choose it here, or paste the link of the file itself.";
  return null;
}

const isAddress = (text) => /^https?:\/\/[^\s/]+/i.test(text);

// What was typed as a link, with https:// where that was left out; null where it is none.
export function asAddress(typed) {
  const text = typed.trim();
  if (isAddress(text)) return text;
  return /^[\w-]+(\.[\w-]+)+\/\S+$/.test(text) ? `https://${text}` : null;
}
