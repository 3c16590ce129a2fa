// The options: who writes and how, each with a sentence; filled in by what GET /models says of the captioners.

import { make } from "../text.js";
import { getModels } from "./server.js";

const KEPT = "reelword.options"; // in this browser's storage

export class Options {
  constructor(form, members) {
    [this.form, this.members] = [form, members];
    this.known = new Map(); // captioner → what GET /models says of it
    this.initial = null;
    form.elements.captioner.addEventListener("change", () => this.showChosen());
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", () => this.keep());
  }

  // Returns whether the service says that no captioner is connected.
  async load() {
    const { status, body } = await getModels();
    const captioners = (body?.captioners || []).sort((a, b) => (b.name === body.default) - (a.name === body.default) || rightOf(b) - rightOf(a)); // the best first
    this.known = new Map(captioners.map((captioner) => [captioner.name, captioner]));
    this.default = body?.default;
    const select = this.form.elements.captioner;
    const options = captioners.map(({ name }) => make("option", name === this.default ? `${this.title(name)} (usual)` : this.title(name), { value: name }));
    select.replaceChildren(...(options.length ? options : [make("option", status === 200 ? "none is connected" : "not known yet", { value: "" })]));
    if (this.default) select.value = this.default;
    const ofChapters = captioners.map(({ name }) => make("option", this.title(name), { value: name }));
    this.form.elements.segment_captioner.replaceChildren(make("option", "the same", { value: "" }), ...ofChapters);
    this.restore();
    const alone = captioners.filter(({ members }) => !members);
    this.members.replaceChildren(this.members.firstElementChild, ...alone.map(({ name }) => memberBox(name, this.title(name))));
    this.showChosen();
    return status === 200 && !captioners.length;
  }

  get names() {
    return [...this.known.keys()];
  }

  // What a captioner is called where people read it.
  title(name) {
    const [first] = (this.known.get(name)?.about || name || "").split(":");
    return first.length < 24 ? first : name.replaceAll("_", " ");
  }

  // Its marks and seconds, in short; empty where neither is known.
  record(name) {
    const captioner = this.known.get(name);
    const marks = marksOf(captioner);
    const seconds = secondsOf(captioner);
    return [marks && `right ${marks.right}, partly ${marks.partly} of ${marks.n} clips`, seconds && `about ${Math.max(1, Math.round(seconds))} s a clip`].filter(Boolean).join(", ");
  }

  // The fields of the form that are not as they would be anyway; captioner: another than the chosen one.
  fields(captioner) {
    const fields = {};
    for (const { name, value } of this.form.querySelectorAll("select[name], input[name]")) if (value.trim()) fields[name] = value.trim();
    if (captioner) fields.captioner = captioner;
    const chosen = this.known.get(fields.captioner);
    if (!chosen?.takes_prompt) delete fields.prompt;
    if (chosen?.members && !captioner) fields.members = this.chosenMembers().join(",");
    return fields;
  }

  // What is wrong with them, or null.
  problem() {
    if (!this.members.hidden && !this.chosenMembers().length) return "Tick at least one captioner under Members.";
    const [captions, beams] = [this.form.elements.num_captions, this.form.elements.beam_size].map(({ value }) => Number(value));
    if (captions > beams) return `Captions: at most as many as beams, ${beams}.`;
    const wrong = [...this.form.elements].find((field) => field.validity && !field.validity.valid);
    return wrong ? `${wrong.labels?.[0]?.firstChild.textContent.trim() || wrong.name}: ${wrong.validationMessage}` : null;
  }

  chosenMembers() {
    return [...this.members.querySelectorAll("input:checked")].map((box) => box.value);
  }

  // Choices outlive a reload; the prompt, which is about one video, does not.
  keep() {
    const chosen = [...this.form.querySelectorAll("select[name], input[name]")].filter(({ name }) => name !== "prompt").map(({ name, value }) => [name, value]);
    try { localStorage.setItem(KEPT, JSON.stringify(Object.fromEntries(chosen))); } catch { /* a browser that keeps nothing */ }
  }

  restore() {
    let chosen = {};
    try { chosen = JSON.parse(localStorage.getItem(KEPT) || "{}"); } catch { /* not ours */ }
    for (const field of this.form.querySelectorAll("select[name], input[name]")) {
      const value = chosen[field.name];
      if (value !== undefined && (field.tagName === "INPUT" || [...field.options].some((option) => option.value === value))) field.value = value;
    }
  }

  // A line about the chosen captioner, and its members where it is made of others.
  showChosen() {
    const chosen = this.known.get(this.form.elements.captioner.value);
    const seconds = secondsOf(chosen);
    const about = chosen ? chosen.plain || `${chosen.about}.` : "The video is kept until a captioner is connected.";
    this.form.querySelector("#about-captioner").textContent = seconds ? `${about} It takes about ${Math.max(1, Math.ceil(seconds))} s for a short clip.` : about;
    this.form.querySelector("#prompt-option").hidden = !chosen?.takes_prompt;
    this.members.hidden = !chosen?.members;
    for (const box of this.members.querySelectorAll("input")) {
      box.checked = Boolean(chosen?.members?.includes(box.value));
      box.parentElement.hidden = !(this.known.get(box.value).member_of || []).includes(chosen?.name);
    }
  }
}

const marksOf = (captioner) => Object.values(captioner?.scores || {}).find(({ right }) => right !== undefined);
const rightOf = (captioner) => marksOf(captioner)?.right ?? -1;
const secondsOf = (captioner) => captioner && (captioner.seconds ?? (captioner.speed ? captioner.speed.feature_seconds + captioner.speed.caption_seconds : null));

function memberBox(name, title) {
  const label = make("label");
  label.append(make("input", undefined, { type: "checkbox", value: name }), ` ${title}`);
  return label;
}
