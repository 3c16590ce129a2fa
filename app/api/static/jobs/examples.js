// Finished examples from static files: they play with no service behind them, and each says who filmed it and whether its caption is right.

import { make, setCurrent } from "../text.js";
import { ask, isGood } from "./server.js";

const FOLDER = new URL("examples/", document.querySelector("script[src]").src);
const BADGES = { right: "right", partly: "partly right", wrong: "wrong, and it cannot tell" };

export class Examples {
  // list: where their pictures are shown; show(example).
  constructor(list, show) {
    [this.element, this.show, this.all] = [list, show, []];
  }

  // The list of {name, caption, verdict, credit, …}; empty where static files do not answer.
  async load() {
    const listed = await ask(new URL("index.json", FOLDER));
    this.all = isGood(listed) ? listed.body : [];
    this.rows = this.all.map((example) => this.row(example));
    this.element.replaceChildren(...this.rows.map(({ item }) => item));
  }

  row(example) {
    const item = make("li");
    const open = make("button", undefined, { type: "button", class: "example" });
    const said = make("span", example.caption, { class: "example-said" });
    const badge = make("span", BADGES[example.verdict], { class: `badge is-${example.verdict}` });
    open.append(make("img", undefined, { src: fileOf(example, "webp"), alt: "", width: 160, height: 90, loading: "lazy" }), said, badge);
    open.onclick = () => this.show(example.name);
    item.append(open);
    return { item, open, name: example.name };
  }

  // One with its answer: {job, attention, urls} beside what the list says; null where there is none of that name.
  async find(name) {
    const listed = this.all.find((example) => example.name === name);
    const answer = listed && await ask(new URL(fileOf(listed, "json"), FOLDER));
    if (!answer || !isGood(answer)) return null;
    return { ...listed, ...answer.body, urls: { video: fileOf(listed, "mp4"), poster: fileOf(listed, "webp"), strip: fileOf(listed, "strip.webp") } };
  }

  mark(name) {
    for (const row of this.rows || []) setCurrent(row.open, row.name === name);
  }
}

const fileOf = ({ name }, kind) => new URL(`${name}.${kind}`, FOLDER).pathname;
