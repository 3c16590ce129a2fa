// The page: plays an example, takes videos, shows one of them, and keeps the address in step, so that reload, back, forward and a link find it again.
// A job stands in the address as /f/<id>, an example as /?sample=<name>, a word and its second as ?w=…&t=….

import { STALLED, UNDER_WAY, explain, percent, sumUp } from "./text.js";
import { Comparison } from "./film/comparison.js";
import { FilmView } from "./film/film_view.js";
import { listenToKeys } from "./film/keys.js";
import { Share } from "./film/share.js";
import { Verdict, doubted } from "./film/verdict.js";
import { Deletions } from "./jobs/deletions.js";
import { Examples } from "./jobs/examples.js";
import { Films } from "./jobs/films.js";
import { KeyBox } from "./jobs/key_box.js";
import { Options } from "./jobs/options.js";
import { Search } from "./jobs/search.js";
import { at, cancelJob, follow, getJob, isGood } from "./jobs/server.js";
import { Uploads, asAddress, filmsIn, refusal } from "./jobs/uploads.js";

const $ = (id) => document.getElementById(id);
const OTHERS_MS = 2000; // between two looks at the jobs that are under way and not on show
const NO_CAPTIONER = "No captioner is connected at the moment. Videos that you send are kept until one is; the examples play without.";

const view = new FilmView($, matchMedia("(prefers-reduced-motion: reduce)").matches, {
  placed: (word, seconds) => place(word, seconds),
  title: (captioner) => options.title(captioner),
});
const films = new Films($("films-list"), $("films-search"), {
  show: (film) => show(film),
  drop: (film) => drop(film),
  changed: (film) => { if (film === current && !film.id) showState(film); },
});
const options = new Options($("options"), $("members"));
const uploads = new Uploads(films, (film) => accepted(film));
const comparison = new Comparison(
  { box: $("compare"), consensus: $("consensus"), rows: $("compare-rows"), choice: $("compare-choice"), one: $("compare-one"), all: $("compare-all"), said: $("compare-said") },
  films, uploads, options, (film) => show(film),
);
const examples = new Examples($("examples-list"), (name) => { history.pushState(null, "", at(`/?sample=${name}`)); showExample(name); scrollTo({ top: 0 }); });
const share = new Share($, view);
new Search({ field: $("films-search"), moments: $("films-moments"), said: $("films-found") }, films, (film, seconds) => {
  history.pushState(null, "", at(`/f/${film.id}?t=${seconds.toFixed(1)}`));
  showAddressed();
  scrollTo({ top: 0 });
});
const verdict = new Verdict({ box: $("doubt"), text: $("doubt-text"), buttons: $("verdicts"), correction: $("correction"), field: $("correct-caption"), said: $("doubt-said") });
const deletions = new Deletions({ box: $("undo-box"), what: $("undo-what"), undo: $("undo") }, films, (problem) => notice(explain(problem).join(" ")));

const keyBox = new KeyBox($, { declined: () => notice("Without a key videos can be neither sent nor shown here. The examples play without."), opened: () => { if (!options.names.length) loadOptions(); } });

let current = null; // the film on show; null while an example is
let stopFollowing = () => {};

// ---- taking films ----

function take(sent) {
  const wrong = options.problem();
  if (wrong) return void notice(wrong, true);
  const refused = sent.map(refusal).find(Boolean);
  if (refused) return void notice(refused);
  notice("");
  keyBox.isDeclined = false;
  const fields = options.fields();
  const taken = sent.map((what) => uploads.add(what, fields));
  if (taken.length > 1) notice(`${taken.length} videos are sent, two at a time. The list shows how far each is.`);
  if (taken.length) show(taken[0]);
  return undefined;
}

function takeFrom(transfer) {
  const { files, urls, text } = filmsIn(transfer);
  if (files.length || urls.length) take([...files.map((file) => ({ file })), ...urls.map((url) => ({ url }))]);
  else if (text) notice("That is neither a video nor the link of one. Links begin with https:// or http://.");
}

function notice(text, opensOptions = false) {
  $("notice").hidden = !text;
  $("notice").textContent = text;
  if (opensOptions) $("options-box").open = true;
  if (text) $("notice").scrollIntoView({ block: "nearest" }); // a phone shows the film, and not what takes others
}

async function loadOptions() {
  if (await options.load()) notice(NO_CAPTIONER);
  if (current) comparison.draw();
}

// ---- showing one ----

function show(film, { push = true } = {}) {
  stopFollowing();
  if (current !== film) forgetDead();
  current = film;
  if (push && film.id && filmId() !== film.id) history.pushState(null, "", at(`/f/${film.id}`));
  document.body.classList.remove("is-empty");
  document.body.classList.toggle("is-opening", Boolean(film.id)); // until it is known what stands above the list
  title(film);
  films.mark(film);
  examples.mark(null);
  view.open(film);
  comparison.show(film);
  verdict.open(null);
  share.open(film);
  showState(film);
}

// A link to nothing, or a file that was refused, leaves the list once it was read.
function forgetDead() {
  if (current && ["refused", "expired"].includes(current.state)) films.remove(current);
}

function title(film) {
  document.title = `${film.name || "A video"} · Reelword`;
  $("title").textContent = film.name || "";
}

function showState(film) {
  if (film.id) watch(film);
  else if (film.state === "unsent") view.working("Will be sent next", 0);
  else if (film.isStalled) view.working(STALLED, null);
  else if (film.state === "sending") view.working(`Sending ${film.name}, ${percent(film.part)}`, film.part);
  else if (film.state === "refused") view.fail(film.problem, Boolean(film.file || film.url));
}

function watch(film) {
  const began = film.state;
  stopFollowing = follow(film.id, {
    job: (job) => { document.body.classList.remove("is-opening"); note(film, job); view.showProgress(job); },
    segment: (segment) => view.addSegment(segment),
    over: (job) => over(film, job, UNDER_WAY.includes(began)),
    connection: (state) => view.showConnection(state),
  });
}

async function over(film, job, isNew) {
  if (job?.state) note(film, job);
  else films.update(film, { state: job?.code === "unknown_job" ? "expired" : film.state, problem: job });
  if (film !== current) return;
  if (job?.state) await view.showEnd(job, Boolean(film.file || film.url), isNew);
  else view.fail(job, Boolean(film.file || film.url));
  if (film !== current) return;
  comparison.draw();
  if (job?.state === "succeeded") {
    share.open(film, job);
    judge(job);
  }
  document.body.classList.remove("is-opening");
  goToPlace();
}

// Doubt in words: by confidence, and by what others say of the same video. A film of chapters has no one caption to judge.
function judge(job) {
  const content = view.evidence?.words.filter(({ isContent }) => isContent).map(({ text }) => text) || [];
  const [isWhole, others] = [!(job.segments?.length > 1), comparison.others()];
  const alone = doubted(others, content);
  verdict.open(isWhole ? job : null, others.length, alone);
  if (isWhole) view.subtitle.doubt(alone, others.length);
}

// What a job's document says, in the list of films.
function note(film, job) {
  films.update(film, {
    state: job.state, part: job.progress, stage: job.stage, place: job.place, workers: job.workers, estimated_seconds: job.estimated_seconds,
    caption: sumUp((job.segments || []).map(({ caption }) => caption)) || job.caption, problem: job.error, name: job.filename || film.name || job.source_url,
    captioner: job.model?.captioner || job.captioner || film.captioner, duration: job.media?.duration ?? film.duration, root: job.recaption_of || film.root,
  });
  if (film === current) title(film);
}

// A film that was being sent is a job now, or was refused.
function accepted(film) {
  if (!uploads.isBusy) notice("");
  if (film !== current) return;
  if (film.id) history.pushState(null, "", at(`/f/${film.id}`));
  view.chapters.open(film.id || null);
  comparison.show(film);
  showState(film);
}

async function drop(film) {
  const isUnderWay = UNDER_WAY.includes(film.state) && !film.isLinked;
  if (isUnderWay && film.id) {
    const { body, status } = await cancelJob(film.id);
    if (film === current && status === 202) view.working("Cancelling", null);
    if (body?.state && body.state !== "running") film === current ? over(film, body, false) : note(film, body);
    return;
  }
  if (isUnderWay) uploads.stop(film);
  deletions.add(film);
  if (film === current) leave();
}

// ---- examples, which are the page while nothing else is ----

async function showExample(name) {
  stopFollowing();
  forgetDead();
  current = null;
  films.mark(null);
  document.body.classList.remove("is-opening");
  document.body.classList.add("is-empty");
  document.title = "Reelword";
  for (const id of ["chapters", "more", "compare", "doubt", "code-box"]) $(id).hidden = true;
  const example = await examples.find(name || examples.all[0]?.name);
  if (current || !example) return;
  $("title").textContent = example.title;
  $("credit").textContent = example.credit;
  examples.mark(example.name);
  view.showExample(example);
  share.open(example);
  goToPlace();
}

// Back to the examples and to what takes videos.
function leave() {
  history.pushState(null, "", at("/"));
  showExample();
  $("choose").focus();
}

// ---- the address ----

const filmId = () => location.pathname.match(/\/f\/(\w+)$/)?.[1] || location.hash.slice(1);
const addressed = (name) => new URLSearchParams(location.search).get(name);

// What the address names: after a reload, back, forward, or by a link from elsewhere.
function showAddressed() {
  const id = filmId();
  if (!id) return void showExample(addressed("sample"));
  if (location.hash) history.replaceState(null, "", at(`/f/${id}`));
  if (current?.id === id) return void goToPlace();
  return void show(films.find(id) || films.add({ id, state: "queued", isLinked: true }), { push: false });
}

// The word and the second on show, as part of the address.
function place(word, seconds) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of [["w", word], ["t", word && seconds.toFixed(1)]]) if (value) query.set(name, value); else query.delete(name);
  history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
}

async function goToPlace() {
  const [film, word, seconds] = [current, addressed("w"), Number(addressed("t") ?? NaN)];
  if (Number.isFinite(seconds)) { view.player.pause(); view.player.seek(seconds); }
  await view.chapterShown;
  if (!word || !view.evidence || film !== current) return;
  view.choose(view.evidence.words.findIndex(({ text, isContent }) => isContent && text === word), Number.isFinite(seconds) ? seconds : null);
}

async function lookAtOthers() {
  for (const film of films.open.filter((other) => other !== current)) {
    const found = await getJob(film.id);
    if (isGood(found)) note(film, found.body);
    else if (found.status === 404) films.update(film, { state: "expired" });
  }
  if (!current) return;
  comparison.draw();
  if (verdict.job) judge(verdict.job);
}

// ---- start ----

$("choose").addEventListener("click", () => $("files").click());
$("files").addEventListener("change", () => { take([...$("files").files].map((file) => ({ file }))); $("files").value = ""; });
$("by-address").addEventListener("submit", (event) => {
  event.preventDefault();
  const address = asAddress($("address").value);
  if (!address) return void notice("Paste the whole link of a video, such as https://example.org/clip.mp4.");
  $("address").value = "";
  return void take([{ url: address }]);
});
$("cancel").addEventListener("click", () => { if (current) drop(current); });
$("again").addEventListener("click", () => {
  if (!current) return;
  keyBox.isDeclined = false;
  if (current.id) take([current.file ? { file: current.file } : { url: current.url }]);
  else { uploads.again(current, options.fields()); showState(current); }
});
for (const id of ["home", "new"]) $(id).addEventListener("click", (event) => { event.preventDefault(); leave(); });
$("heat-switch").addEventListener("click", () => view.setLook("heat"));
$("spotlight").addEventListener("click", () => view.setLook("spotlight"));
$("delete-all").addEventListener("click", () => { deletions.addAll(); leave(); });
$("speak").hidden = !("speechSynthesis" in window);
$("speak").addEventListener("click", () => view.speak());
$("keys-open").addEventListener("click", () => $("keys").showModal());
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    document.body.classList.toggle("is-over", kind === "dragover");
    if (kind === "drop") takeFrom(event.dataTransfer);
  });
}
document.addEventListener("paste", (event) => { if (!event.target.closest?.("input, textarea")) takeFrom(event.clipboardData); });
listenToKeys(view, $("keys"), [[["c"], "The next captioner", () => comparison.next()]]);
window.addEventListener("popstate", showAddressed);
new MutationObserver(() => { $("films").hidden = !films.listed.length; }).observe($("films-list"), { childList: true });
$("films").hidden = !films.listed.length;
setInterval(lookAtOthers, OTHERS_MS);
if (filmId()) showAddressed();
examples.load().then(() => { if (!filmId() && !current) showAddressed(); }); // unless something was sent meanwhile
loadOptions();
