// Searches the videos of the list by meaning: the service compares captions and pictures, and the moments that fit are shown as pictures.
// Beside it the list itself is narrowed by words, which is all there is while no captioner answers.

import { clock, make } from "../text.js";
import { isGood, searchMoments } from "./server.js";

const PAUSE_MS = 400; // after the last letter
const MOST = 12; // moments that are shown
const [NOTHING, UNANSWERED] = ["No moment of your videos fits that.", "No captioner answers at the moment: the list is searched by words alone."];

export class Search {
  // elements: field, moments (a list), said. films: the list; show(film, seconds).
  constructor(elements, films, show) {
    Object.assign(this, elements, { films, show });
    this.field.addEventListener("input", () => {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.ask(), this.field.value.trim() ? PAUSE_MS : 0);
    });
  }

  async ask() {
    const words = this.field.value.trim();
    const ids = this.films.films.filter(({ id, state }) => id && state === "succeeded").map(({ id }) => id);
    const answer = words && ids.length ? await searchMoments(words, ids, 2 * MOST) : { status: 200, body: { moments: [] } };
    if (words !== this.field.value.trim()) return; // it was typed on
    const moments = isGood(answer) ? this.distinct(answer.body.moments).slice(0, MOST) : [];
    this.moments.replaceChildren(...moments.map((moment) => this.item(moment)));
    this.said.textContent = !words || moments.length ? "" : isGood(answer) ? NOTHING : UNANSWERED;
  }

  // Once each, of those that several captioners have captioned.
  distinct(moments) {
    const firstOf = new Map();
    for (const moment of moments) {
      const film = this.films.find(moment.job);
      const key = film && `${film.root || film.id} ${Math.round(moment.start)}`;
      if (film && !firstOf.has(key)) firstOf.set(key, { ...moment, film });
    }
    return [...firstOf.values()];
  }

  item({ film, picture, caption, representative: seconds }) {
    const item = make("li");
    const open = make("button", undefined, { type: "button", class: "example", title: film.name || "" });
    const image = make("img", undefined, { src: picture, alt: "", width: 160, height: 90, loading: "lazy" });
    image.onerror = () => image.classList.add("is-gone");
    open.append(image, make("span", caption, { class: "example-said" }), make("span", clock(seconds), { class: "quiet" }));
    open.onclick = () => this.show(film, seconds);
    item.append(open);
    return item;
  }
}
