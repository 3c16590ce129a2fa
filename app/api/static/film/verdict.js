// How sure the caption is, in words, and what a visitor says of it: right, partly or wrong, with what it should be.

import { explain, make } from "../text.js";
import { isGood, sendVerdict } from "../jobs/server.js";

const SURE = [[0.66, "It is probably right"], [0.4, "It may be right"], [0.2, "It is a guess"], [0, "Probably not right in full"]];
const NO_MEASURE = "It cannot tell how sure it is: judge it by eye, or ask other captioners.";
const LOW = 0.5; // share of captioners that must say a word before it is not in doubt

export class Verdict {
  // elements: box, text, buttons (their parent), correction (a form), field, said.
  constructor(elements) {
    Object.assign(this, elements);
    this.buttons.addEventListener("click", (event) => { if (event.target.dataset.verdict) this.choose(event.target.dataset.verdict); });
    this.correction.addEventListener("submit", (event) => { event.preventDefault(); this.keep(); });
  }

  // job: that has succeeded; others: how many other captioners wrote of the same video; alone: as of `doubted`.
  open(job, others, alone) {
    const isSame = this.job?.id === job?.id;
    this.job = job;
    this.box.hidden = !job?.caption;
    if (!job?.caption) return;
    this.text.replaceChildren(...doubt(job.captions?.[0]?.confidence ?? null, others, alone));
    if (isSame) return;
    this.mark(null);
    this.correction.hidden = true;
    this.said.textContent = "";
  }

  mark(verdict) {
    for (const button of this.buttons.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.verdict === verdict));
  }

  // Right is kept at once, the others when their correction is.
  choose(verdict) {
    this.verdict = verdict;
    this.mark(verdict);
    this.correction.hidden = verdict === "right";
    this.field.value = this.job.caption;
    if (verdict === "right") this.keep();
    else this.field.select();
  }

  async keep() {
    const correction = this.verdict === "right" || this.field.value.trim() === this.job.caption ? "" : this.field.value.trim();
    const answer = await sendVerdict(this.job.id, { verdict: this.verdict, correction });
    this.correction.hidden = isGood(answer);
    this.said.textContent = isGood(answer) ? "Thank you: kept with this video, for judging and training." : explain(answer.body).join(" ");
  }
}

// Content words that most of the others do not say: [word, by how many].
export function doubted(others, content) {
  const counted = content.map((word) => [word, others.filter((caption) => caption.split(" ").includes(word)).length]);
  return counted.filter(([, count]) => count < LOW * others.length);
}

// Sentences about doubt, the words that other captioners do not say in bold.
function doubt(confidence, others, alone) {
  const sure = confidence === null ? null : SURE.find(([least]) => confidence >= least)[1];
  const tenths = Math.round(10 * confidence);
  const first = sure ? `${sure}: of captions like this one, ${tenths} in 10 ${tenths === 1 ? "is" : "are"}.` : others ? "" : NO_MEASURE;
  if (!others) return [first];
  if (!alone.length) return [first, first ? " " : "", `The ${others === 1 ? "other captioner says" : `${others} other captioners say`} the same things.`];
  const parts = alone.flatMap(([word, count], k) => [k ? ", " : "", make("b", word), count ? ` (${count} of ${others} others say it)` : ""]);
  return [first, first ? " " : "", "Other captioners do not agree on ", ...parts, "."];
}
