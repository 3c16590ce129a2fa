// Captioners side by side: what others write of the same film, with the words that differ marked.

import { explain, make, setCurrent, waiting, endedAs } from "../text.js";
import { isGood, recaption } from "../jobs/server.js";

const NOT_THERE = [404, 405, 409, 410]; // an older service, or a film that is no longer kept

export class Comparison {
  // elements: box, rows, choice (a select), one, all (buttons), said. films, uploads, options; show(film).
  constructor(elements, films, uploads, options, show) {
    Object.assign(this, elements, { films, uploads, options });
    this.open = show;
    this.film = null;
    this.one.addEventListener("click", () => this.write(this.choice.value));
    this.all.addEventListener("click", () => this.missing().forEach((name) => this.write(name)));
  }

  show(film) {
    this.film = film;
    this.said.textContent = "";
    this.draw();
  }

  // Opens what the captioner after the one on show has written.
  next() {
    const done = this.film ? this.films.sameFilm(this.film).filter(({ state }) => state === "succeeded") : [];
    if (done.length > 1) this.open(done[(done.indexOf(this.film) + 1) % done.length]);
  }

  missing() {
    const there = new Set(this.films.sameFilm(this.film).map(({ captioner }) => captioner));
    return this.options.names.filter((name) => !there.has(name));
  }

  draw() {
    const film = this.film;
    const same = film?.id ? this.films.sameFilm(film) : [];
    this.box.hidden = !same.length || (same.length < 2 && !this.options.names.length);
    if (this.box.hidden) return;
    const [missing, chosen] = [this.missing(), this.choice.value];
    this.choice.replaceChildren(...missing.map((name) => make("option", name)));
    if (missing.includes(chosen)) this.choice.value = chosen;
    for (const control of [this.choice, this.one, this.all]) control.disabled = !missing.length;
    this.rows.replaceChildren(...same.map((one) => this.row(one, film, same)));
  }

  // What is on show is marked where any other differs, any other where it differs from what is on show.
  row(other, film, same) {
    const item = make("li", undefined, { class: "compare-row" });
    const button = make("button", undefined, { type: "button", class: "compare-open" });
    setCurrent(button, other === film);
    const text = make("span", undefined, { class: "compare-text" });
    if (other.state !== "succeeded") text.append(make("span", stateOf(other), { class: "quiet" }));
    else text.append(...markDifferences(other.caption, ...same.filter((one) => one.caption && (other === film ? one !== film : one === film)).map(({ caption }) => caption)));
    button.append(make("span", other.captioner || "captioner", { class: "compare-name" }), text);
    button.onclick = () => this.open(other);
    item.append(button);
    return item;
  }

  // From what is kept of the film; where nothing is, from the file, if this page still has it.
  async write(captioner) {
    const { film } = this;
    if (!captioner) return;
    const { segments } = film.options || {};
    const options = { ...(segments && { segments }), captioner };
    const shared = { name: film.name, captioner, root: film.root || film.id, local: film.local, file: film.file, duration: film.duration };
    const found = await recaption(shared.root, options);
    if (isGood(found) && found.body?.id) this.watch(this.films.add({ ...shared, id: found.body.id, state: found.body.state, options }));
    else if (film.file && NOT_THERE.includes(found.status)) this.watch(this.uploads.add({ file: film.file }, options), shared);
    else this.said.textContent = this.excuse(found);
  }

  watch(film, changes = {}) {
    this.films.update(film, changes);
    this.films.draw();
    this.draw();
  }

  excuse({ status, body }) {
    const [what, todo] = status === 405 || body?.code === "not_found" ? ["This service cannot caption a film anew.", "Send it again with another captioner chosen under Options."] : explain(body);
    return `${what} ${todo}`;
  }
}

function stateOf(film) {
  if (["queued", "running"].includes(film.state)) return `${waiting(film)} …`;
  return film.problem ? explain(film.problem)[0] : endedAs(film.state);
}

// The text as nodes, with the words marked that not all the others have in this order.
export function markDifferences(text, ...others) {
  const words = text.split(/\s+/);
  const kept = others.map((other) => commonWords(words, other.split(/\s+/)));
  return words.flatMap((word, k) => [k ? " " : "", kept.every((places) => places.has(k)) ? word : make("mark", word)]);
}

// Places in `ours` of the longest sequence of words that both have.
function commonWords(ours, theirs) {
  const length = Array.from({ length: ours.length + 1 }, () => new Array(theirs.length + 1).fill(0));
  for (let i = ours.length - 1; i >= 0; i -= 1) {
    for (let j = theirs.length - 1; j >= 0; j -= 1) {
      length[i][j] = ours[i] === theirs[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const kept = new Set();
  for (let i = 0, j = 0; i < ours.length && j < theirs.length;) {
    if (ours[i] === theirs[j]) { kept.add(i); i += 1; j += 1; }
    else if (length[i + 1][j] >= length[i][j + 1]) i += 1;
    else j += 1;
  }
  return kept;
}
