// The list of films: those being sent, those under way, those done. Jobs are kept in this browser, so that a reload loses none.

import { STALLED, UNDER_WAY, clock, endedAs, explain, hasWords, make, percent, setCurrent, waiting } from "../text.js";
import { frameUrl } from "./server.js";

const KEPT = "reelword.films";
const MOST_KEPT = 60;
const NOTHING = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'/%3E"; // a picture that is not there yet
const STORED = ["id", "name", "state", "caption", "captioner", "when", "root", "duration", "problem", "thumbnail", "isLinked"]; // isLinked: opened by its address, and not sent from here

export class Films {
  // list: where films are shown; search: a field; acts: show(film), drop(film), changed(film).
  constructor(list, search, acts) {
    [this.element, this.search, this.acts] = [list, search, acts];
    search.addEventListener("input", () => this.draw());
    this.films = read();
    this.rows = new Map(); // film → its row
    this.current = null;
    this.draw();
    window.addEventListener("storage", (event) => { if (event.key === KEPT) this.merge(); });
  }

  add(film) {
    const found = { when: Date.now(), state: "queued", part: 0, ...film };
    this.films.unshift(found);
    this.keep();
    this.draw();
    return found;
  }

  find(id) {
    return this.films.find((film) => film.id === id);
  }

  // Those that were captioned of the same film, the first of them first.
  sameFilm(film) {
    const root = film.root || film.id;
    return this.films.filter((other) => other.id && (other.id === root || other.root === root)).reverse();
  }

  update(film, changes) {
    const isNew = STORED.some((name) => name in changes && changes[name] !== film[name]);
    Object.assign(film, changes);
    if (isNew) this.keep();
    if (this.rows.has(film)) this.fill(film);
    else this.draw();
    this.acts.changed(film);
  }

  remove(film) {
    this.films = this.films.filter((other) => other !== film);
    this.keep();
    this.draw();
  }

  restore(film) {
    this.films.push(film);
    this.films.sort((a, b) => b.when - a.when);
    this.keep();
    this.draw();
  }

  // Keeps a small picture of a film that plays from its sender's own disk.
  picture(film, video) {
    if (!film?.local || film.thumbnail || !this.films.includes(film)) return;
    const canvas = Object.assign(document.createElement("canvas"), { width: 160, height: 90 });
    const scale = Math.max(160 / video.videoWidth, 90 / video.videoHeight);
    const [width, height] = [video.videoWidth * scale, video.videoHeight * scale];
    canvas.getContext("2d").drawImage(video, (160 - width) / 2, (90 - height) / 2, width, height);
    this.update(film, { thumbnail: canvas.toDataURL("image/jpeg", 0.6) });
  }

  mark(film) {
    this.current = film;
    this.draw();
  }

  // All but those of an address of which nothing is known yet, or nothing at all.
  get listed() {
    return this.films.filter(({ isLinked, name }) => !isLinked || name !== undefined);
  }

  get open() {
    return this.films.filter((film) => film.id && ["queued", "running"].includes(film.state));
  }

  keep() {
    const kept = this.films.filter(isKept).slice(0, MOST_KEPT);
    const lines = kept.map((film) => Object.fromEntries(STORED.map((name) => [name, film[name]])));
    try { localStorage.setItem(KEPT, JSON.stringify(lines)); } catch { /* a browser that keeps nothing shows them until a reload */ }
  }

  // What another tab has sent meanwhile.
  merge() {
    const known = new Set(this.films.map(keyOf));
    this.films.unshift(...read().filter((film) => !known.has(keyOf(film))));
    this.films.sort((a, b) => b.when - a.when);
    this.draw();
  }

  draw() {
    const ids = new Set(this.films.map(({ id }) => id));
    const sought = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const isSought = (film) => this.sameFilm(film).concat(film).some(({ caption, name }) => hasWords(`${caption || ""} ${name || ""}`, sought));
    const shown = this.listed.filter((film) => (!film.root || !ids.has(film.root)) && (!sought.length || isSought(film))); // one row for all captions of a film
    for (const film of shown) if (!this.rows.has(film)) this.rows.set(film, row(film, this.acts));
    this.element.replaceChildren(...shown.map((film) => this.rows.get(film)));
    shown.forEach((film) => this.fill(film));
  }

  fill(film) {
    const item = this.rows.get(film);
    if (!item) return;
    const [open, drop] = [item.querySelector(".film-open"), item.querySelector(".film-drop")];
    const isOpen = UNDER_WAY.includes(film.state);
    setCurrent(open, film === this.current || Boolean(film.id && film.id === this.current?.root)); // one that was refused has no id
    item.querySelector(".film-name").textContent = film.name || "A video";
    open.title = film.name || "";
    item.querySelector(".film-said").textContent = saidOf(film);
    item.querySelector(".film-when").textContent = film.duration ? clock(film.duration) : "";
    drop.title = film.isLinked ? "Take off this list" : isOpen ? "Cancel" : "Delete";
    drop.setAttribute("aria-label", `${drop.title}${film.isLinked ? ":" : ""} ${film.name || "the video"}`);
    const bar = item.querySelector("progress");
    bar.hidden = !isOpen;
    if (isOpen) fillBar(bar, film);
    const picture = item.querySelector("img");
    if (picture.src === NOTHING && (film.thumbnail || film.state === "succeeded")) picture.src = film.thumbnail || frameUrl(film.id, 0);
  }
}

function fillBar(bar, film) {
  bar.setAttribute("aria-label", `How far ${film.name || "the video"} is`);
  bar.value = film.state === "unsent" ? 0 : film.part || 0;
}

function saidOf(film) {
  if (film.state === "unsent") return "Will be sent next";
  if (film.isStalled) return STALLED;
  if (film.state === "sending") return `Sending, ${percent(film.part || 0)}`;
  if (["queued", "running"].includes(film.state)) return waiting(film);
  if (film.state === "succeeded") return film.caption || "(no words)";
  return film.problem ? explain(film.problem)[0] : endedAs(film.state);
}

function row(film, { show, drop }) {
  const item = make("li", undefined, { class: "film-row" });
  const open = make("button", undefined, { type: "button", class: "film-open" });
  const picture = make("img", undefined, { src: NOTHING, alt: "", width: 80, height: 45, loading: "lazy" });
  picture.onerror = () => { picture.classList.add("is-gone"); };
  const texts = make("span", undefined, { class: "film-texts" });
  const first = make("span", undefined, { class: "film-first" });
  first.append(make("span", "", { class: "film-name" }), make("span", "", { class: "film-when" }));
  texts.append(first, make("span", "", { class: "film-said" }), make("progress", undefined, { max: 1 }));
  open.append(picture, texts);
  open.onclick = () => show(film);
  const close = make("button", "×", { type: "button", class: "film-drop" });
  close.onclick = () => drop(film);
  item.append(open, close);
  return item;
}

// A job that is not known to be gone.
const isKept = ({ id, state }) => typeof id === "string" && state !== "expired";
const keyOf = ({ id, name, when }) => id || `${when} ${name}`;

function read() {
  try {
    const lines = JSON.parse(localStorage.getItem(KEPT) || "[]");
    return Array.isArray(lines) ? lines.filter((line) => line && isKept(line)) : [];
  } catch {
    return [];
  }
}
