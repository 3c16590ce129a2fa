// One film on show: it plays and reads its caption, lanes under it show which word stands on which moment; while its job is under way, how far that is.

import { UNDER_WAY, clock, endedAs, explain, mayHelpAgain, waiting } from "../text.js";
import { frameUrl, getAttention, getSegmentAttention, inPlace, segmentFrameUrl } from "../jobs/server.js";
import { Chapters } from "./chapters.js";
import { readEvidence } from "./evidence.js";
import { captionView, wordView } from "./explanations.js";
import { showFacts } from "./facts.js";
import { Lanes } from "./lanes.js";
import { Player } from "./player.js";
import { Subtitle } from "./subtitle.js";

const RECONNECTING = "The connection is lost; trying again. Nothing that was accepted is lost.";
const UNPLAYABLE = {
  waiting: "Your browser cannot play this kind of video. Its frames are shown here once it is captioned.",
  over: "This video cannot be shown here.",
  none: "The video is shown here once it is captioned.",
};

export class FilmView {
  // $: finds an element by its id; calm: whether the visitor wants no motion; told: placed(word or null, seconds), title(captioner), its name for people.
  constructor($, calm, told) {
    Object.assign(this, { $, calm, told, film: null, job: null, evidence: null });
    this.subtitle = new Subtitle({ caption: $("caption"), heat: $("heat"), chip: $("chip") }, {
      chosen: (word) => this.choose(word),
      preview: (word) => this.preview(word, null),
      lit: (word, isPinned) => this.showLit(word, isPinned),
    });
    this.lanes = new Lanes(
      { box: $("lanes"), rows: $("lane-rows"), strip: $("strip"), band: $("band"), head: $("head"), place: $("place"), first: $("first"), last: $("last"), part: $("part") },
      { seek: (seconds) => this.player.seek(seconds), word: (word, seconds) => this.choose(word, seconds), preview: (word, seconds) => this.preview(word, seconds), loop: (part) => this.loop(part) },
    );
    this.player = new Player(
      { screen: $("screen"), backdrop: $("backdrop"), stage: $("stage"), video: $("video"), slide: $("slide"), note: $("unplayable"), play: $("play"), sound: $("sound"), loop: $("loop"), time: $("time") },
      { moved: (seconds) => this.moved(seconds), kind: () => { this.stretch(); this.showNote(); }, began: () => this.subtitle.pin(-1), looped: (part) => this.lanes.markLoop(part) },
    );
    this.facts = { facts: $("facts"), warnings: $("warnings"), others: $("others"), othersBox: $("others-box"), png: $("link-png"), attention: $("link-attention"), job: $("link-job") };
    this.chapters = new Chapters(
      { box: $("chapters"), list: $("chapters-list"), search: $("chapters-search"), sum: $("chapters-sum"), found: $("chapters-found"), links: $("chapters-links") },
      (number) => { this.player.seek(this.chapters.segments[number].start); this.showChapter(number); },
    );
  }

  // A film that is sent, or waits, or is over: what is known of it at once.
  open(film) {
    Object.assign(this, { film, job: null, evidence: null, began: 0, chapter: -1, chapterShown: null });
    for (const id of ["working", "problem", "own", "more", "spotlight", "heat-switch"]) this.$(id).hidden = true;
    this.$("own-word").replaceChildren();
    this.$("announced").textContent = "";
    this.$("cancel").hidden = Boolean(film.isLinked); // another's
    this.subtitle.clear();
    this.lanes.show([0, film.duration || 1], [], null, film.duration || 0);
    this.chapters.open(film.id || null);
    this.$("film").classList.toggle("is-waiting", UNDER_WAY.includes(film.state));
    this.player.open({ sources: film.local ? [film.local] : [], duration: film.duration || 0, begin: !this.calm && film.state !== "succeeded" });
  }

  // A finished example from static files: {job, attention, video, strip, poster}.
  showExample(example) {
    this.open({ state: "succeeded", name: example.title, example });
    const { job, attention, urls } = example;
    this.job = job;
    this.player.open({ sources: [urls.video], frames: this.frames(), duration: job.media.duration, size: [job.media.width, job.media.height], begin: !this.calm });
    this.say(attention, job.caption, job.sampled, [0, job.media.duration], this.frames());
    if (this.calm) this.player.seek(this.evidence.moments[this.evidence.words.find(({ moment }) => moment !== null)?.moment ?? 0].sought);
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
    const news = Object.fromEntries(Object.entries(job).filter(([, value]) => value !== null)); // an event has not all of it
    this.job = { ...this.job, ...news };
    if (job.state === "running") this.began ||= Date.now();
    if (job.media?.width) this.player.add(this.known(job));
    this.stretch();
    if (job.segments) this.chapters.show(this.fromFirst(job.segments));
    if (job.text && !this.chapters.segments.length) this.subtitle.clear(job.text); // as far as it is written
    this.working(this.progressOf(this.job), job.state === "queued" ? 0 : job.progress);
  }

  // Segments are on the film's own clock, all else counts from its first picture.
  fromFirst(segments) {
    const zero = this.job?.media?.first_picture || 0;
    return segments?.map((each) => ({ ...each, start: each.start - zero, end: each.end - zero, representative: each.representative - zero }));
  }

  addSegment(segment) {
    this.chapters.add(this.fromFirst([segment])[0]);
    if (this.job?.state === "running") this.working(this.progressOf(this.job), this.job.progress);
  }

  // Of a film that is cut: how many shots are done, up to where, and how long the rest takes at that speed.
  progressOf(job) {
    const done = this.chapters.segments;
    const [length, reached] = [job.media?.duration || this.player.length, done.at(-1)?.end];
    if (job.state !== "running" || !done.length || !length) return waiting(job);
    const left = Math.max(1, Math.round(((Date.now() - this.began) / 1000 / reached) * (length - reached)));
    return `Shot ${done.length} · ${clock(reached, false)} of ${clock(length, false)}${reached < length ? ` · about ${left < 90 ? `${left} s` : `${Math.round(left / 60)} min`} left` : ""}`;
  }

  showConnection(state) {
    if (state === "lost") this.working(RECONNECTING, null);
    else if (this.job) this.working(this.progressOf(this.job), this.job.progress);
  }

  // What a job's document says to the player.
  known({ urls, media }) {
    const { width, height, duration = 0, has_audio: hasSound = false, first_picture: zero = 0 } = media || {};
    return { sources: [this.film.local, inPlace(urls?.video)].filter(Boolean), duration, hasSound, zero, size: width ? [width, height] : null };
  }

  fail(problem, canBeSentAgain) {
    this.subtitle.clear();
    const hadFocus = this.$("working").contains(document.activeElement);
    this.$("working").hidden = true;
    this.$("problem").hidden = false;
    const [what, todo] = explain(problem);
    this.$("problem-what").textContent = what;
    this.$("problem-todo").textContent = todo;
    this.$("again").hidden = !canBeSentAgain || !mayHelpAgain(problem);
    if (hadFocus) this.$(this.$("again").hidden ? "new" : "again").focus();
    this.showNote();
  }

  // A job that is over.
  async showEnd(job, canBeSentAgain, isNew) {
    this.job = job;
    if (job.state !== "succeeded") {
      this.fail(job.error || { detail: `${endedAs(job.state)}.`, hint: canBeSentAgain ? "" : "Send the video again to have it captioned." }, canBeSentAgain);
      return;
    }
    const { film } = this;
    const { body, status } = job.model?.options?.attention === false ? {} : await getAttention(job.id);
    if (film !== this.film) return;
    const attention = status === 200 ? body : null;
    if (this.$("working").contains(document.activeElement)) this.$("place").focus();
    this.$("working").hidden = true;
    this.$("film").classList.remove("is-waiting");
    this.$("more").hidden = false;
    showFacts(this.facts, job, Boolean(attention), this.told.title);
    this.chapters.show(this.fromFirst(job.segments));
    const duration = Math.max(job.media?.duration || 0, ...(attention?.parts || attention?.times || []).map(([, end]) => end), ...(job.sampled || []));
    this.player.add({ ...this.known(job), frames: this.frames(), duration });
    const own = attention ? captionView(job, attention) : [];
    this.$("own").hidden = !own.length;
    this.$("own").replaceChildren(...own);
    if (this.chapters.segments.length > 1) this.chapterShown = this.showChapter(Math.max(0, this.chapters.current));
    else this.say(attention, job.caption, job.sampled || [], [0, duration], this.frames());
    const said = this.chapters.sum.textContent || job.caption || "no words";
    this.$("said").textContent = `Caption: ${said}`;
    if (isNew) this.$("announced").textContent = `Caption of ${job.filename || "the video"}: ${said}`;
    if (!isNew || this.calm) return;
    this.player.seek(0);
    this.player.start();
  }

  // What stands for the film where it cannot be played, and in its strip.
  frames() {
    const { sampled, segments, id } = this.job;
    if (this.film.example) return sampled.map((time, k) => ({ time, url: this.film.example.urls.strip, sprite: [k, sampled.length], still: this.film.example.urls.poster }));
    if (segments?.length > 1 && !(sampled?.length > segments.length)) return this.fromFirst(segments).map(({ representative }, k) => ({ time: representative, url: segmentFrameUrl(id, k) }));
    return (sampled || []).map((time, k) => ({ time, url: frameUrl(id, k) }));
  }

  // A chapter's caption, heat and lanes, on the stretch of time that is its own.
  async showChapter(number) {
    const { film } = this;
    const segment = this.chapters.segments[number];
    if (!segment) return;
    this.chapter = number;
    this.chapters.mark(number);
    const frames = [{ time: segment.representative, url: segmentFrameUrl(film.id, number) }];
    const say = (attention) => this.say(attention, segment.caption, [segment.representative], [segment.start, segment.end], frames);
    say(null);
    const { status, body } = await getSegmentAttention(film.id, number);
    if (film === this.film && number === this.chapter && status === 200) say(body);
  }

  // attention: null where it was not asked for.
  say(attention, caption, sampled, span, frames) {
    const at = this.player.at;
    this.attention = attention?.words?.length ? attention : null;
    this.evidence = this.attention && readEvidence(this.attention, sampled);
    this.lanes.show(span, frames, this.evidence, this.player.length);
    for (const id of ["heat-switch", "spotlight"]) this.$(id).hidden = !this.evidence?.spatial;
    this.$("own-word").replaceChildren();
    if (this.evidence) this.subtitle.show(this.evidence, this.lanes.clock);
    else this.subtitle.clear(caption || "(no words)");
    this.moved(at);
  }

  // ---- words ----

  // A word that was clicked, tapped or stepped to: the film goes to its moment and stands there; once more, and it is let go.
  choose(word, seconds = null) {
    this.endPreview();
    if (word < 0 || !this.evidence) return;
    if (word === this.subtitle.pinned && seconds === null) return void this.letGo();
    const { moments, words } = this.evidence;
    this.player.pause();
    this.subtitle.pin(word);
    this.player.seek(seconds ?? (words[word].moment === null ? this.player.at : moments[words[word].moment].sought));
    this.told.placed(words[word].text, this.player.at);
  }

  // The word whose heat is on the film; undefined for none.
  word() {
    return this.evidence?.words[this.subtitle.shown];
  }

  letGo() {
    this.subtitle.pin(-1);
    this.told.placed(null, 0);
  }

  // What a pointer is over, for as long as it is: null for nothing any more.
  preview(word, seconds) {
    if (word === null && seconds === null) return void this.endPreview();
    if (!this.evidence && seconds === null) return undefined;
    this.before ||= { at: this.player.at, wasPlaying: this.player.isPlaying };
    this.player.pause();
    this.subtitle.preview(word);
    const moment = word === null ? null : this.evidence.words[word].moment;
    if (seconds !== null) this.player.seek(seconds);
    else if (moment !== null) this.player.seek(this.evidence.moments[moment].sought);
    return undefined;
  }

  endPreview() {
    const { before } = this;
    this.before = null;
    this.subtitle.preview(null);
    if (before?.wasPlaying) this.player.start();
  }

  loop(part) {
    this.player.setLoop(true, part);
    this.player.seek(part[0]);
    this.player.start();
  }

  // To the moment so many places after the one that the film stands at.
  goToMoment(by) {
    const { moments } = this.evidence || {};
    if (!moments) return;
    const at = moments.findIndex(({ end }) => this.player.at < end - 0.01);
    this.player.pause();
    this.player.seek(moments[Math.max(0, Math.min((at < 0 ? moments.length - 1 : at) + by, moments.length - 1))].sought);
  }

  // Turns one way of showing places on, or off; heat and spotlight are never on together.
  setLook(look) {
    this.subtitle.as(this.subtitle.look === look ? "none" : look);
    this.$("heat-switch").setAttribute("aria-pressed", String(this.subtitle.look === "heat"));
    this.$("spotlight").setAttribute("aria-pressed", String(this.subtitle.look === "spotlight"));
  }

  showLit(word, isPinned) {
    this.lanes.light(word, isPinned);
    const items = this.attention && word >= 0 && isPinned ? wordView(this.attention, word, this.lanes.clock, (moment) => this.player.seek(this.evidence.moments[moment].sought)) : [];
    this.$("own-word").replaceChildren(...items);
    if (this.isSpeaking && word >= 0 && this.player.isPlaying) speechSynthesis.speak(new SpeechSynthesisUtterance(this.evidence.words[word].text));
  }

  // Says each word as it lights up.
  speak() {
    this.isSpeaking = !this.isSpeaking;
    this.$("speak").setAttribute("aria-pressed", String(this.isSpeaking));
  }

  moved(seconds) {
    this.lanes?.moved(seconds);
    this.subtitle?.moved(seconds);
    if (this.chapters?.moved(seconds) && this.chapters.segments.length > 1 && this.chapters.current >= 0 && this.chapters.current !== this.chapter) this.chapterShown = this.showChapter(this.chapters.current);
  }

  // The time axis, once it is known how long the film is; with words it has their own.
  stretch() {
    const { length } = this.player;
    if (length && !this.evidence && this.chapter < 0 && this.lanes.span[1] !== length) this.lanes.show([0, length], [], null, length);
  }

  showNote() {
    if (!this.film) return;
    const isOver = !UNDER_WAY.includes(this.film.state);
    const isNothing = isOver && this.film.state !== "succeeded" && this.player.kind === "none"; // a file that is no film
    for (const id of ["screen", "controls", "lanes"]) this.$(id).hidden = isNothing;
    this.$("unplayable").textContent = isOver ? UNPLAYABLE.over : this.film.local ? UNPLAYABLE.waiting : UNPLAYABLE.none;
  }
}
