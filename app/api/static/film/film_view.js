// One film on show: it plays, its caption runs under it, and below that its time; while its job is under way, how far that is.

import { endedAs, explain, mayHelpAgain, waiting } from "../text.js";
import { frameUrl, getAttention, getSegmentAttention, segmentFrameUrl } from "../jobs/server.js";
import { captionView, wordView } from "./explanations.js";
import { Chapters } from "./chapters.js";
import { showFacts } from "./facts.js";
import { Player } from "./player.js";
import { Timeline } from "./timeline.js";
import { Words } from "./words.js";

const RECONNECTING = "The connection is lost; trying again. Nothing that was accepted is lost.";
const UNPLAYABLE = {
  waiting: "Your browser cannot play this kind of film. Its frames are shown here once it is captioned.",
  over: "This film cannot be shown here.",
  none: "The film is shown here once it is captioned.",
};

export class FilmView {
  // $: finds an element by its id; calm: whether the visitor wants no motion.
  constructor($, calm) {
    [this.$, this.calm, this.film, this.job] = [$, calm, null, null];
    this.player = new Player(
      { stage: $("stage"), video: $("video"), slide: $("slide"), note: $("unplayable"), play: $("play"), sound: $("sound"), time: $("time") },
      { moved: (seconds) => this.moved(seconds), kind: () => this.showNote() },
    );
    this.timeline = new Timeline(
      { box: $("timeline"), strip: $("strip"), bars: $("bars"), place: $("place"), head: $("head"), first: $("first"), last: $("last"), even: $("even") },
      { seek: (seconds) => { this.words.stopTour(); this.player.seek(seconds); }, moment: (moment) => { this.words.stopTour(); this.player.pause(); this.words.goTo(moment, true); } },
    );
    this.words = new Words(
      { caption: $("caption"), looked: $("looked"), legend: $("legend"), heat: $("heat") }, this.player, this.timeline,
      { word: (word) => this.showWordView(word) },
    );
    this.chapters = new Chapters(
      { box: $("chapters"), list: $("chapters-list"), search: $("chapters-search"), found: $("chapters-found"), links: $("chapters-links") },
      (number) => this.showChapter(number),
    );
    $("whole").addEventListener("click", () => this.showWhole());
    $("heat-switch").addEventListener("click", () => $("heat-switch").setAttribute("aria-pressed", String(this.words.toggleHeat())));
    $("tour").addEventListener("click", () => (this.words.isTouring ? this.words.stopTour() : this.tour()));
    $("play").addEventListener("click", () => this.words.stopTour(), { capture: true });
  }

  // A film that is sent, or waits, or is over: what is known of it at once.
  open(film) {
    [this.film, this.job, this.attention] = [film, null, null];
    for (const id of ["working", "problem", "timeline", "own", "more", "heat-switch", "tour", "whole"]) this.$(id).hidden = true;
    this.$("film").hidden = false;
    this.$("own-word").replaceChildren();
    for (const id of ["first", "last", "announced"]) this.$(id).textContent = "";
    this.$("ends-legend").hidden = true;
    this.words.clear();
    this.chapters.open(film.id || null);
    const sources = film.local ? [film.local] : [];
    this.player.open({ sources, duration: film.duration || 0, begin: !this.calm && film.state !== "succeeded" });
  }

  // How far it is, in words and as a bar; part is null where that is not known.
  working(text, part) {
    this.$("working").hidden = false;
    this.$("problem").hidden = true;
    if (this.$("status").textContent !== text) this.$("status").textContent = text;
    if (part == null) this.$("progress").removeAttribute("value");
    else this.$("progress").value = part;
    this.showNote();
  }

  // The job while it is not over.
  showProgress(job) {
    this.job = { ...this.job, ...job };
    if (job.media?.width) this.player.add(this.known(job));
    this.chapters.show(job.segments);
    this.working(waiting(job), job.state === "queued" ? 0 : job.progress);
  }

  showConnection(state) {
    if (state === "lost") this.working(RECONNECTING, null);
    else if (this.job) this.working(waiting(this.job), this.job.progress);
  }

  // What a job's document tells the player.
  known({ urls, media }) {
    const { width, height, duration = 0, has_audio: hasSound = false } = media || {};
    return { sources: [this.film.local, urls?.video].filter(Boolean), duration, hasSound, size: width ? [width, height] : null };
  }

  fail(problem, canBeSentAgain) {
    this.$("working").hidden = true;
    this.$("problem").hidden = false;
    const [what, todo] = explain(problem);
    this.$("problem-what").textContent = what;
    this.$("problem-todo").textContent = todo;
    this.$("again").hidden = !canBeSentAgain || !mayHelpAgain(problem);
    this.showNote();
  }

  // A job that is over. Returns whether it has a caption.
  async showEnd(job, canBeSentAgain, isNew) {
    this.job = job;
    if (job.state !== "succeeded") {
      this.fail(job.error || { detail: `${endedAs(job.state)}.`, hint: canBeSentAgain ? "" : "Send the film again to have it captioned." }, canBeSentAgain);
      return;
    }
    const { film } = this;
    const { body: attention, status } = job.model?.options?.attention === false ? {} : await getAttention(job.id);
    if (film !== this.film) return;
    this.attention = status === 200 ? attention : null;
    this.$("working").hidden = true;
    this.$("more").hidden = false;
    showFacts(this.factElements(), job, Boolean(this.attention));
    this.chapters.show(job.segments);
    this.player.add({ ...this.known(job), frames: this.frames(), duration: this.duration() });
    this.player.pause();
    const own = this.attention ? captionView(job, this.attention) : [];
    this.$("own").hidden = !own.length;
    this.$("own").replaceChildren(...own);
    this.showWhole();
    this.$("said").textContent = `Caption: ${job.caption || "no words"}`;
    if (isNew) this.$("announced").textContent = `Caption of ${job.filename || "the film"}: ${job.caption || "no words"}`;
    if (isNew && !this.calm && this.attention && !sessionStorage.getItem("reelword.toured")) this.tour();
  }

  factElements() {
    const { $ } = this;
    return { facts: $("facts"), warnings: $("warnings"), others: $("others"), othersBox: $("others-box"), png: $("link-png"), attention: $("link-attention"), job: $("link-job") };
  }

  duration() {
    const ends = (this.attention?.parts || this.attention?.times || []).map(([, end]) => end);
    return Math.max(this.job.media?.duration || 0, ...ends, ...(this.job.sampled || []));
  }

  // What stands for the film where it cannot be played, and in its timeline.
  frames() {
    const { sampled, segments, id } = this.job;
    if (segments?.length > 1 && !(sampled?.length > segments.length)) return segments.map(({ representative }, k) => ({ time: representative, url: segmentFrameUrl(id, k) }));
    return (sampled || []).map((time, k) => ({ time, url: frameUrl(id, k) }));
  }

  showWhole() {
    this.$("whole").hidden = true;
    this.chapters.mark(-1);
    this.say(this.attention, this.job.caption, this.job.sampled || [], [0, this.duration()], this.frames());
  }

  // A chapter's caption in place of the film's, on the stretch of time that is its own.
  async showChapter(number) {
    const { film, job } = this;
    const segment = this.chapters.segments[number];
    this.words.stopTour();
    this.player.pause();
    this.player.seek(segment.start);
    const { status, body } = await getSegmentAttention(film.id, number);
    if (film !== this.film) return;
    this.chapters.mark(number);
    this.$("whole").hidden = job?.state !== "succeeded";
    const frames = [{ time: segment.representative, url: segmentFrameUrl(film.id, number) }];
    this.say(status === 200 ? body : null, segment.caption, [segment.representative], [segment.start, segment.end], frames);
  }

  // attention: null where it was not asked for.
  say(attention, caption, sampled, span, frames) {
    const drawn = attention?.evidence ? { ...attention, ...attention.evidence } : attention;
    this.shown = drawn;
    const hasWords = Boolean(attention?.words?.length);
    this.$("timeline").hidden = false;
    this.$("ends-legend").hidden = !hasWords;
    this.timeline.show(span, frames, hasWords ? attention.parts || attention.times : [], this.player.length);
    this.$("tour").hidden = !hasWords;
    this.$("heat-switch").hidden = !drawn?.spatial;
    this.$("heat-switch").setAttribute("aria-pressed", "true");
    this.$("own-word").replaceChildren();
    if (hasWords) this.words.show(drawn, sampled, attention === this.attention ? this.job.captions?.[0]?.words : null);
    else this.words.clear(caption || "(no words)");
  }

  showWordView(word) {
    const items = this.shown ? wordView(this.shown, word, this.timeline.clock, (moment) => this.words.goTo(moment, true)) : [];
    this.$("own-word").replaceChildren(...items);
    this.$("heat-switch").setAttribute("aria-pressed", "true");
  }

  tour() {
    sessionStorage.setItem("reelword.toured", "yes");
    this.$("tour").textContent = "Stop";
    this.words.tour(() => { this.$("tour").textContent = "Word by word"; });
  }

  moved(seconds) {
    this.timeline?.moved(seconds);
    this.words?.moved(seconds);
    this.chapters?.moved(seconds);
  }

  showNote() {
    if (!this.film) return;
    const isOver = !["unsent", "sending", "queued", "running"].includes(this.film.state);
    const isNothing = isOver && this.film.state !== "succeeded" && this.player.kind === "none"; // a file that is no film
    for (const id of ["screen", "controls"]) this.$(id).hidden = isNothing;
    this.$("unplayable").textContent = isOver ? UNPLAYABLE.over : this.film.local ? UNPLAYABLE.waiting : UNPLAYABLE.none;
  }
}
