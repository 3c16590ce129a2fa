// The page: takes films, shows one of them, and keeps the address in step, so that reload, back and forward find it again.
// A job's id stands in the address (#id); a shared link shows the same.

import { explain, percent } from "./text.js";
import { Comparison } from "./film/comparison.js";
import { FilmView } from "./film/film_view.js";
import { Films } from "./jobs/films.js";
import { Options } from "./jobs/options.js";
import { cancelJob, follow, forgetKey, getJob, isGood, onLocked, sendKey } from "./jobs/server.js";
import { Uploads, filmsIn, isAddress } from "./jobs/uploads.js";

const $ = (id) => document.getElementById(id);
const OTHERS_MS = 2000; // between two looks at the jobs that are under way and not on show
const NO_CAPTIONER = "No captioner is connected at the moment. Films that you send are kept until one is.";
const SIGNED_IN = "reelword.signed-in"; // in this browser's storage, once a key was accepted
const UNDER_WAY = ["unsent", "sending", "queued", "running"];

const view = new FilmView($, matchMedia("(prefers-reduced-motion: reduce)").matches);
const films = new Films($("films-list"), {
  show: (film) => show(film),
  drop: (film) => drop(film),
  changed: (film) => { if (film === current && !film.id) showState(film); },
});
const options = new Options($("options"), $("members"));
const uploads = new Uploads(films, (film) => accepted(film));
const comparison = new Comparison(
  { box: $("compare"), rows: $("compare-rows"), choice: $("compare-choice"), one: $("compare-one"), all: $("compare-all"), said: $("compare-said") },
  films, uploads, options, (film) => show(film),
);

let current = null; // the film on show
let stopFollowing = () => {};

// ---- taking films ----

function take(found) {
  const wrong = options.problem();
  if (wrong) return void notice(wrong, true);
  notice("");
  isDeclined = false;
  const fields = options.fields();
  const sent = found.map((what) => uploads.add(what, fields));
  if (sent.length > 1) notice(`${sent.length} films are sent, two at a time. The list shows how far each is.`);
  if (sent.length) show(sent[0]);
  return undefined;
}

function takeFrom(transfer) {
  const { files, urls, text } = filmsIn(transfer);
  if (files.length || urls.length) take([...files.map((file) => ({ file })), ...urls.map((url) => ({ url }))]);
  else if (text) notice("That is neither a film nor the address of one. Addresses begin with https:// or http://.");
}

async function takeSample() {
  const answer = await fetch("/static/sample.mp4").catch(() => null);
  if (!answer?.ok) return void notice(explain({ code: "unreachable" }).join(" "));
  take([{ file: new File([await answer.blob()], "sample.mp4", { type: "video/mp4" }) }]);
  return undefined;
}

function notice(text, opensOptions = false) {
  $("notice").hidden = !text;
  $("notice").textContent = text;
  if (opensOptions) $("options-box").open = true;
}

async function loadOptions() {
  if (await options.load()) notice(NO_CAPTIONER);
  if (current) comparison.draw();
}

// ---- showing one ----

function show(film, { push = true } = {}) {
  stopFollowing();
  current = film;
  if (push && film.id && location.hash.slice(1) !== film.id) history.pushState(null, "", `#${film.id}`);
  document.body.classList.remove("is-empty");
  document.title = `${film.name || "A film"} · Reelword`;
  films.mark(film);
  view.open(film);
  comparison.show(film);
  showState(film);
}

function showState(film) {
  if (film.id) watch(film);
  else if (film.state === "unsent") view.working("Will be sent next", 0);
  else if (film.state === "sending") view.working(`Sending ${film.name}, ${percent(film.part)}`, film.part);
  else if (film.state === "refused") view.fail(film.problem, Boolean(film.file || film.url));
}

function watch(film) {
  const began = film.state;
  stopFollowing = follow(film.id, {
    job: (job) => { note(film, job); view.showProgress(job); },
    segment: (segment) => view.chapters.add(segment),
    over: (job) => over(film, job, UNDER_WAY.includes(began)),
    connection: (state) => view.showConnection(state),
  });
}

async function over(film, job, isNew) {
  if (job?.state) note(film, job);
  else films.update(film, { state: job?.code === "unknown_job" ? "expired" : film.state, problem: job });
  if (film !== current) return;
  comparison.draw();
  if (job?.state) await view.showEnd(job, Boolean(film.file || film.url), isNew);
  else view.fail(job, Boolean(film.file || film.url));
}

// What a job's document says, in the list of films.
function note(film, job) {
  films.update(film, {
    state: job.state, part: job.progress, stage: job.stage, place: job.place, workers: job.workers, estimated_seconds: job.estimated_seconds,
    caption: job.caption, problem: job.error, name: job.filename || film.name || job.source_url,
    captioner: job.model?.captioner || job.captioner || film.captioner, duration: job.media?.duration ?? film.duration, root: job.recaption_of || film.root,
  });
  if (film === current) document.title = `${film.name || "A film"} · Reelword`;
}

// A film that was being sent is a job now, or was refused.
function accepted(film) {
  if (!uploads.isBusy) notice("");
  if (film !== current) return;
  if (film.id) history.pushState(null, "", `#${film.id}`);
  view.chapters.open(film.id || null);
  comparison.show(film);
  showState(film);
}

async function drop(film) {
  const isUnderWay = UNDER_WAY.includes(film.state);
  if (isUnderWay && film.id) {
    const { body, status } = await cancelJob(film.id);
    if (film === current && status === 202) view.working("Cancelling", null);
    if (body?.state && body.state !== "running") film === current ? over(film, body, false) : note(film, body);
    return;
  }
  if (isUnderWay) uploads.stop(film);
  films.remove(film);
  if (film === current) leave();
}

// To the page as it is at first.
function leave() {
  stopFollowing();
  view.player.open({});
  current = null;
  films.mark(null);
  history.pushState(null, "", location.pathname);
  showEmpty();
}

function showEmpty() {
  document.body.classList.add("is-empty");
  document.title = "Reelword";
  for (const id of ["film", "chapters", "more"]) $(id).hidden = true;
}

// What the address names: after a reload, back, forward, or by a link from elsewhere.
function showAddressed() {
  const id = location.hash.slice(1);
  if (!id) {
    stopFollowing();
    view.player.open({});
    current = null;
    films.mark(null);
    return void showEmpty();
  }
  if (current?.id === id) return undefined;
  return void show(films.find(id) || films.add({ id, state: "queued" }), { push: false });
}

async function lookAtOthers() {
  for (const film of films.open.filter((other) => other !== current)) {
    const found = await getJob(film.id);
    if (isGood(found)) note(film, found.body);
    else if (found.status === 404) films.update(film, { state: "expired" });
  }
  if (current) comparison.draw();
}

// ---- the key, where one is needed ----

let unlocking = null;
let isDeclined = false; // until the visitor wants to send something

function askForKey() {
  if (isDeclined) return Promise.resolve(false);
  unlocking ||= new Promise((resolve) => {
    const done = (isOpen) => {
      [unlocking, isDeclined] = [null, !isOpen];
      $("key-box").close();
      if (!isOpen) notice("Without a key films can be neither sent nor shown here.");
      resolve(isOpen);
    };
    $("key-cancel").onclick = () => done(false);
    $("key-box").oncancel = () => done(false);
    $("key-form").onsubmit = async (event) => {
      event.preventDefault();
      const found = await sendKey($("key").value.trim());
      if (isGood(found)) {
        localStorage.setItem(SIGNED_IN, "yes");
        $("sign-out").hidden = false;
        done(true);
        return void (options.names.length || loadOptions());
      }
      $("key-said").textContent = found.status === 0 ? explain(found.body).join(" ") : "This key is not accepted. Look whether it was copied whole.";
      return undefined;
    };
    $("key-box").showModal();
  });
  return unlocking;
}

// ---- start ----

onLocked(askForKey);
$("sign-out").hidden = !localStorage.getItem(SIGNED_IN);
$("sign-out").addEventListener("click", async () => {
  await forgetKey();
  localStorage.removeItem(SIGNED_IN);
  location.reload();
});
$("choose").addEventListener("click", () => $("files").click());
$("files").addEventListener("change", () => { take([...$("files").files].map((file) => ({ file }))); $("files").value = ""; });
$("sample").addEventListener("click", takeSample);
$("by-address").addEventListener("submit", (event) => {
  event.preventDefault();
  const address = $("address").value.trim();
  if (!isAddress(address)) return void notice("Write the whole address of a film, beginning with https:// or http://.");
  $("address").value = "";
  return void take([{ url: address }]);
});
$("cancel").addEventListener("click", () => { if (current) drop(current); });
$("again").addEventListener("click", () => {
  if (!current) return;
  if (current.id) take([current.file ? { file: current.file } : { url: current.url }]);
  else { uploads.again(current, options.fields()); showState(current); }
});
$("home").addEventListener("click", (event) => { if (!uploads.isBusy) return; event.preventDefault(); leave(); });
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    document.body.classList.toggle("is-over", kind === "dragover");
    if (kind === "drop") takeFrom(event.dataTransfer);
  });
}
document.addEventListener("paste", (event) => { if (!event.target.closest?.("input, textarea")) takeFrom(event.clipboardData); });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") view.words.stopTour();
  if (event.key === " " && event.target === document.body) { event.preventDefault(); view.player.toggle(); }
});
window.addEventListener("popstate", showAddressed);
new MutationObserver(() => { $("films").hidden = !$("films-list").children.length; }).observe($("films-list"), { childList: true });
$("films").hidden = !$("films-list").children.length;
setInterval(lookAtOthers, OTHERS_MS);
loadOptions();
showAddressed();
