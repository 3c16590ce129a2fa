// Takes a film, a word and its moment along: as a link, as text, as a picture, and as files under the film's own name.


const SAID_MS = 2500;

export class Share {
  // $: finds an element by its id; view: the film on show.
  constructor($, view) {
    Object.assign(this, { $, view });
    $("copy-link").addEventListener("click", () => this.copy(location.href, "Link copied"));
    $("copy-caption").addEventListener("click", () => this.copy(this.caption(), "Caption copied"));
  }

  // film: one of the list, or an example; job: its document, once it is over.
  open(film, job) {
    this.$("share").hidden = !(job || film.attention);
    this.job = job || film.job;
  }

  caption() {
    return this.view.evidence?.words.map(({ text }) => text).join(" ") || this.job?.caption || "";
  }

  async copy(text, said) {
    try {
      await navigator.clipboard.writeText(text);
      this.say(said);
    } catch {
      this.say(text); // a browser that forbids it: to be copied by hand
    }
  }

  say(text) {
    clearTimeout(this.fading);
    this.$("shared").textContent = text;
    this.fading = setTimeout(() => { this.$("shared").textContent = ""; }, SAID_MS);
  }
}
