// Captioners, one video: what most of them say, with counted variants, and a card for each with its marks and seconds.

import { UNDER_WAY, explain, isSum, make, setCurrent, waiting, endedAs } from "../text.js";
import { isGood, recaption } from "../jobs/server.js";

const isLost = ({ state }) => state !== "succeeded" && !UNDER_WAY.includes(state); // over, without a caption
const NOT_THERE = [404, 405, 409, 410]; // an older service, or a film that is no longer kept

export class Comparison {
  // elements: box, consensus, rows, choice (a select), one, all (buttons), said. films, uploads, options; show(film).
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
    const done = this.done();
    if (done.length > 1) this.open(done[(done.indexOf(this.film) + 1) % done.length]);
  }

  done() {
    return this.film?.id ? this.films.sameFilm(this.film).filter(({ state, caption }) => state === "succeeded" && caption) : [];
  }

  // Captions of the same film by others than the one on show.
  others() {
    return this.done().filter((film) => film !== this.film).map(({ caption }) => caption);
  }

  missing() {
    const there = new Set(this.films.sameFilm(this.film).map(({ captioner }) => captioner));
    return this.options.names.filter((name) => !there.has(name));
  }

  draw() {
    const film = this.film;
    const same = film?.id ? this.films.sameFilm(film) : [];
    this.box.hidden = same.every(isLost) || (same.length < 2 && !this.options.names.length);
    if (this.box.hidden) return;
    const [missing, chosen] = [this.missing(), this.choice.value];
    this.choice.replaceChildren(...missing.map((name) => make("option", this.options.title(name), { value: name })));
    if (missing.includes(chosen)) this.choice.value = chosen;
    this.choice.parentElement.hidden = !missing.length;
    const captions = this.done().map(({ caption }) => caption);
    this.consensus.replaceChildren(...(captions.some(isSum) ? [] : consensusOf(captions))); // words of many shots are no sentence
    this.rows.replaceChildren(...same.map((one) => this.row(one, film)));
  }

  // A card; words that the caption on show lacks are marked.
  row(other, film) {
    const item = make("li", undefined, { class: "compare-row" });
    const button = make("button", undefined, { type: "button", class: "compare-open" });
    setCurrent(button, other === film);
    const text = make("span", undefined, { class: "compare-text" });
    if (other.state !== "succeeded") text.append(make("span", stateOf(other, other === film), { class: "quiet" }));
    else text.append(...(other === film || !film.caption ? [other.caption || "(no words)"] : markDifferences(other.caption || "", film.caption)));
    const about = [this.options.title(other.captioner), this.options.record(other.captioner)].filter(Boolean).join(": ");
    button.append(text, make("span", about, { class: "compare-name" }));
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
    const answer = await recaption(shared.root, options);
    if (isGood(answer) && answer.body?.id) this.watch(this.films.add({ ...shared, id: answer.body.id, state: answer.body.state, options }));
    else if (film.file && NOT_THERE.includes(answer.status)) this.watch(this.uploads.add({ file: film.file }, options), shared);
    else this.said.textContent = this.excuse(answer);
  }

  watch(film, changes = {}) {
    this.films.update(film, changes);
    this.films.draw();
    this.draw();
  }

  excuse({ status, body }) {
    const [what, todo] = status === 405 || body?.code === "not_found" ? ["This service cannot caption a video anew.", "Send it again with another captioner chosen under Options."] : explain(body);
    return `${what} ${todo}`;
  }
}

// How far the one on show is stands above.
function stateOf(film, isShown) {
  if (["queued", "running"].includes(film.state)) return isShown ? "not written yet …" : `${waiting(film)} …`;
  return film.problem ? explain(film.problem)[0] : endedAs(film.state);
}

// The caption that agrees most with all of them, its words followed by what others say instead, counted: "man (woman · 2)".
function consensusOf(captions) {
  if (captions.length < 2) return [];
  const all = captions.map((caption) => caption.split(/\s+/));
  const agreement = (words) => all.reduce((sum, other) => sum + commonWords(words, other).length / Math.max(words.length, other.length), 0);
  const middle = all.reduce((best, words) => (agreement(words) > agreement(best) ? words : best));
  const counts = middle.map(() => 0);
  const variants = middle.map(() => new Map()); // what stands instead of, or after, each word, counted
  for (const words of all) {
    let from = 0;
    for (const [ours, theirs] of [...commonWords(middle, words), [middle.length, words.length]]) {
      if (ours < middle.length) counts[ours] += 1;
      const instead = words.slice(from, theirs).join(" ");
      const here = variants[Math.max(0, ours - 1)];
      if (instead) here.set(instead, (here.get(instead) || 0) + 1);
      from = theirs + 1;
    }
  }
  const noted = (place) => [...variants[place]].sort((a, b) => b[1] - a[1]).slice(0, 2).map(([text, count]) => make("small", ` (${text} · ${count})`));
  return [`${captions.length} say: `, ...middle.flatMap((word, k) => [make("span", word, { class: counts[k] * 2 > captions.length ? "is-agreed" : "is-doubted" }), ...noted(k), " "])];
}

// The text as nodes, with the words marked that the other has not in this order.
export function markDifferences(text, other) {
  const words = text.split(/\s+/);
  const kept = new Set(commonWords(words, other.split(/\s+/)).map(([place]) => place));
  return words.flatMap((word, k) => [k ? " " : "", kept.has(k) ? word : make("mark", word)]);
}

// Pairs of places, in `ours` and in `theirs`, of the longest sequence of words that both have.
function commonWords(ours, theirs) {
  const length = Array.from({ length: ours.length + 1 }, () => new Array(theirs.length + 1).fill(0));
  for (let i = ours.length - 1; i >= 0; i -= 1) {
    for (let j = theirs.length - 1; j >= 0; j -= 1) {
      length[i][j] = ours[i] === theirs[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const pairs = [];
  for (let i = 0, j = 0; i < ours.length && j < theirs.length;) {
    if (ours[i] === theirs[j]) pairs.push([i++, j++]);
    else if (length[i + 1][j] >= length[i][j + 1]) i += 1;
    else j += 1;
  }
  return pairs;
}
