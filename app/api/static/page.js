// The page: send a video, follow its job, show the caption and where each word looked.
// The job's id is kept in the address (#id), so that a reload or a shared link shows it again.

import { drawFrame } from "./heat.js";
import { frameOf, keyMoments, ownView, wordView } from "./own.js";

const $ = (id) => document.getElementById(id);
const STAGES = { decode: "Reading the video", extract: "Looking at its frames", caption: "Writing the caption" };
const POLL_MS = [150, 250, 400, 700, 1000];
const PATIENCE = 15; // polls in a row that may go unanswered, e.g. while the server restarts
const SPREAD = "spread over the whole clip"; // said where a word's weights over time are nearly even
const COMBINED = ["fusion", "ensemble"]; // captioners that are made of others
// What the server calls the fields, and what this page calls them.
const LABELS = {
  num_captions: "Captions", beam_size: "Beam size", max_length: "Most words", captioner: "captioner", members: "Members", segments: "Segments", prompt: "Prompt",
  "GET /models": "the list under Options", "under known": "below",
};

let upload = null; // the XMLHttpRequest that sends a file
let following = null; // the id of the job on show
let cancelling = null; // the id of the job that was asked to stop
let sent = null; // the file that was sent last, to run it again
let known = new Map(); // captioner → what GET /models says of it

// ---- sending ----

function send(file) {
  reset();
  history.replaceState(null, "", location.pathname); // the address is the new file's, once it has a job
  const form = new FormData();
  for (const field of $("form").querySelectorAll("select, input[type=number]")) if (field.value) form.append(field.name, field.value);
  if (!$("members").hidden) form.append("members", chosenMembers().join(","));
  form.append("video", file); // last, so that a wrong option is known to be wrong before the file is sent
  $("chosen").textContent = file.name;
  sent = file;
  $("again").hidden = false;
  upload = new XMLHttpRequest();
  upload.open("POST", "/caption");
  upload.responseType = "json";
  upload.upload.onprogress = (event) => working(`Sending ${file.name}`, event.loaded / event.total);
  upload.onload = () => (upload.status === 202 || upload.status === 200 ? follow(upload.response.id) : fail(upload.response));
  upload.onerror = () => fail(null);
  upload.onabort = () => reset();
  upload.onloadend = () => { upload = null; };
  working(`Sending ${file.name}`, 0);
  upload.send(form);
}

// ---- following ----

async function follow(id) {
  following = id;
  history.replaceState(null, "", `#${id}`);
  for (let turn = 0, silent = 0; following === id; turn += 1) {
    const job = await getJson(`/jobs/${encodeURIComponent(id)}`);
    if (following !== id) return;
    silent = job.code === "unreachable" || job.status === 503 ? silent + 1 : 0;
    if (job.state) showSegments(job);
    if (!job.state && (silent === 0 || silent > PATIENCE)) return void fail(job);
    if (job.state && !["queued", "running"].includes(job.state)) return void (await finished(job));
    if (job.state) working(describe(job), job.progress);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS[Math.min(turn, POLL_MS.length - 1)]));
  }
}

function describe(job) {
  if (cancelling === job.id) return "Cancelling";
  return job.state === "queued" ? "Waiting for a worker" : STAGES[job.stage] || "Running";
}

async function getJson(path) {
  try {
    return await (await fetch(path)).json();
  } catch {
    return { code: "unreachable", detail: "The server does not answer.", hint: "See that it runs, then reload this page." };
  }
}

async function cancel() {
  if (upload) return upload.abort();
  const id = cancelling = following;
  working("Cancelling", null);
  const response = await fetch(`/jobs/${encodeURIComponent(id)}`, { method: "DELETE" }).catch(() => null);
  if (!response) fail(null);
}

// ---- showing ----

function reset() {
  following = null;
  for (const id of ["working", "problem", "result", "film"]) $(id).hidden = true;
  $("segments").replaceChildren();
}

function working(text, part) {
  $("working").hidden = false;
  $("problem").hidden = true;
  if ($("status").textContent !== text) $("status").textContent = text;
  if (part === null || Number.isNaN(part)) $("progress").removeAttribute("value");
  else $("progress").value = part;
}

function fail(problem) {
  reset();
  $("problem").hidden = false;
  $("problem-message").textContent = inWords(problem?.detail || problem?.message || "The server does not answer.");
  $("problem-hint").textContent = inWords([problem?.hint, problem?.known && `There are: ${problem.known.join(", ")}.`].filter(Boolean).join(" "));
}

// A server's sentence with the names that this page has for its fields.
function inWords(text) {
  return Object.entries(LABELS).reduce((said, [name, label]) => said.replaceAll(name, label), text);
}

async function finished(job) {
  if (job.state !== "succeeded") {
    const said = { canceled: "The job was cancelled.", expired: "The job's answer is no longer kept." };
    fail(job.error || { detail: said[job.state] || `The job ended as ${job.state}.`, hint: "Send the video again." });
    return;
  }
  $("working").hidden = true;
  const path = `/jobs/${encodeURIComponent(job.id)}`;
  const attention = job.model?.options?.attention === false ? null : await getJson(`${path}/attention`);
  $("result").hidden = false;
  showLinks(path, attention?.words);
  showFacts(job);
  showWarnings(job.warnings || []);
  showOthers(job.captions || []);
  const own = attention?.words ? ownView(job, attention) : [];
  $("own").hidden = !own.length;
  $("own").replaceChildren(...own);
  if (attention?.words) new Looked(job, attention).start();
  else { $("looked").hidden = true; $("caption").textContent = job.caption || "(no words)"; }
}

// Those that have been done since the last look; a film has thousands.
function showSegments({ id, segments }) {
  $("film").hidden = !segments?.length;
  if (!segments?.length) return;
  for (const kind of ["vtt", "srt", "csv"]) $(`link-${kind}`).href = `/jobs/${encodeURIComponent(id)}/captions.${kind}`;
  const fresh = segments.slice($("segments").children.length);
  $("segments").append(...fresh.map(({ start, end, caption }) => make("li", `${clock(start)} to ${clock(end)}  ${caption}`)));
}

function clock(seconds) {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 3600)}:${String(Math.floor(whole / 60) % 60).padStart(2, "0")}:${String(whole % 60).padStart(2, "0")}`;
}

function showLinks(path, hasAttention) {
  $("link-png").href = `${path}/attention.png`;
  $("link-attention").href = `${path}/attention`;
  $("link-job").href = path;
  $("link-png").hidden = $("link-attention").hidden = !hasAttention;
}

function showFacts(job) {
  const media = job.media || {};
  const seconds = (value) => (value == null ? null : `${value.toFixed(2)} s`);
  const rows = [
    ["File", job.filename],
    ["Video", [media.container, media.codec].filter(Boolean).join(", ")],
    ["Picture", media.width && `${media.width} × ${media.height}${media.rotation ? `, turned by ${media.rotation}°` : ""}`],
    ["Duration", seconds(media.duration) + (media.times_estimated ? " (estimated)" : "")],
    ["Frames", media.frames == null ? null : `${media.frames}${media.frames_lost ? `, ${media.frames_lost} undecodable` : ""}`],
    ["Sound", media.has_audio == null ? null : media.has_audio ? media.audio_codec || "yes" : "none"],
    ["Captioner", job.model && [job.model.captioner, job.model.members && `of ${Object.keys(job.model.members).join(", ")}`].filter(Boolean).join(" ")],
    ["Took", seconds(job.timings?.total)],
  ];
  $("facts").replaceChildren(...rows.filter(([, value]) => value).flatMap(([name, value]) => [make("dt", name), make("dd", value)]));
}

function showWarnings(warnings) {
  $("warnings").hidden = !warnings.length;
  $("warnings").replaceChildren(...warnings.map((warning) => make("li", warning.message)));
}

function showOthers(captions) {
  $("others").hidden = captions.length < 2;
  $("others").replaceChildren(...captions.map((caption) => make("li", `${caption.text} (${caption.score.toFixed(2)})`)));
}

function make(tag, text) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  return element;
}

// ---- where each word looked ----

class Looked {
  constructor(job, attention) {
    this.job = job;
    this.attention = attention;
    this.frames = new Map(); // k → promise of an image
    this.parts = attention.parts || attention.times; // of the clip, that the moments stand for
    this.word = 0;
    this.moment = 0;
    this.asked = false; // whether the moment was chosen by hand
  }

  start() {
    $("looked").hidden = false;
    this.words = this.attention.words.map((text, word) => this.button(text, () => this.chooseWord(word)));
    this.words.forEach((button, word) => { button.title = this.logprob(word); });
    $("caption").replaceChildren(...this.words);
    $("caption").onkeydown = (event) => this.step(event);
    const span = Math.max(this.job.media?.duration || 0, ...this.parts.map(([, end]) => end)) || 1;
    this.moments = this.parts.map(([start, end], moment) => {
      const button = this.button(undefined, () => this.chooseMoment(moment, true));
      button.append(make("span"));
      button.style.left = `${(100 * start) / span}%`;
      button.style.width = `${Math.max(0.8, (100 * (end - start)) / span)}%`;
      return button;
    });
    $("timeline").replaceChildren(...this.moments);
    $("end").textContent = `${span.toFixed(1)} s`;
    this.chooseWord(this.firstContentWord());
  }

  button(text, choose) {
    const button = make("button", text);
    button.type = "button";
    button.onclick = choose;
    return button;
  }

  logprob(word) {
    const scored = this.job.captions?.[0]?.words?.[word];
    return scored ? `probability ${Math.exp(scored.logprob).toFixed(2)}` : "";
  }

  // "a" looks nowhere in particular: start with a longer word.
  firstContentWord() {
    const found = this.attention.words.findIndex((word) => word.length > 3);
    return found < 0 ? 0 : found;
  }

  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const next = this.word + (by || 0);
    if (!by || next < 0 || next >= this.words.length) return;
    event.preventDefault();
    this.words[next].focus();
    this.chooseWord(next);
  }

  chooseWord(word) {
    this.word = word;
    const weights = this.attention.temporal[word] || [];
    const top = Math.max(...weights, 1e-9);
    this.words.forEach((button, k) => button.setAttribute("aria-pressed", String(k === word)));
    const keys = keyMoments(this.attention, word);
    $("own-word").replaceChildren(...wordView(this.attention, word));
    this.moments.forEach((button, k) => {
      const weight = weights[k] || 0;
      button.classList.toggle("key", keys.includes(k));
      button.firstChild.style.height = `${(100 * weight) / top}%`;
      button.setAttribute("aria-label", `${this.time(k)}, ${Math.round(100 * weight)} % of the word's attention`);
    });
    this.chooseMoment(keys.length ? keys.reduce((a, b) => (weights[b] > weights[a] ? b : a)) : Math.max(0, weights.indexOf(top)));
  }

  chooseMoment(moment, asked = false) {
    this.moment = moment;
    this.asked = asked;
    $("timeline").classList.toggle("spread", this.namesNoMoment());
    this.moments.forEach((button, k) => button.setAttribute("aria-pressed", String(k === moment)));
    this.show();
  }

  async show() {
    const { word, moment } = this;
    const k = frameOf(this.job.sampled, this.attention.times[moment]);
    const image = await this.frame(k);
    if (word !== this.word || moment !== this.moment || following !== this.job.id) return;
    const spatial = this.attention.spatial;
    drawFrame($("frame"), image, spatial, spatial?.weights[word]?.[moment], spatial?.boxes?.[moment]);
    const label = this.label(this.job.sampled[k].toFixed(1));
    $("frame-label").textContent = label;
    $("frame").setAttribute("aria-label", `Frame of the video. ${label}`);
  }

  // Where weights are nearly even, unless a moment was chosen by hand, or read as a key frame.
  namesNoMoment() {
    return Boolean(this.attention.spread?.[this.word]) && !this.asked && !keyMoments(this.attention, this.word).length;
  }

  label(seconds) {
    const { word, moment } = this;
    const [text, weights, isSpread] = [this.attention.words[word], this.attention.temporal[word], this.attention.spread?.[word]];
    if (!weights) return `“${text}” had no attention. Frame at ${seconds} s`;
    if (this.namesNoMoment()) return `“${text}”: ${SPREAD}. Frame at ${seconds} s`;
    const said = `“${text}” at ${seconds} s: ${Math.round(100 * weights[moment])} % of its attention`;
    return isSpread ? `${said}, which is ${SPREAD}` : said;
  }

  frame(k) {
    if (!this.frames.has(k)) {
      const image = new Image();
      image.src = `/jobs/${encodeURIComponent(this.job.id)}/frames/${k}.jpg`;
      this.frames.set(k, image.decode().then(() => image));
    }
    return this.frames.get(k);
  }

  time(moment) {
    return `${this.parts[moment].map((seconds) => seconds.toFixed(1)).join(" to ")} s`;
  }
}

// ---- start ----

async function listCaptioners() {
  const { captioners, default: first } = await getJson("/models");
  if (!captioners?.length) return void showAbout();
  known = new Map(captioners.map((captioner) => [captioner.name, captioner]));
  const select = $("form").elements.captioner;
  select.replaceChildren(...captioners.map(({ name }) => make("option", name)));
  select.value = known.has(first) ? first : captioners[0].name;
  const alone = captioners.filter(({ name }) => !COMBINED.includes(name));
  $("members").replaceChildren($("members").firstElementChild, ...alone.map(({ name }) => memberBox(name)));
  showAbout();
}

function memberBox(name) {
  const [label, box] = [make("label"), make("input")];
  Object.assign(box, { type: "checkbox", value: name });
  label.append(box, ` ${name}`);
  return label;
}

function chosenMembers() {
  return [...$("members").querySelectorAll("input:checked")].map((box) => box.value);
}

// A line about the chosen captioner, and its members where it is made of others.
function showAbout() {
  const chosen = known.get($("form").elements.captioner.value);
  const waiting = chosen?.speed ? ` About ${(chosen.speed.feature_seconds + chosen.speed.caption_seconds).toFixed(1)} s for a clip of 10 s.` : "";
  $("about").textContent = chosen ? `${chosen.about}.${waiting}` : "";
  $("members").hidden = !chosen?.members;
  for (const box of $("members").querySelectorAll("input")) {
    box.checked = Boolean(chosen?.members?.includes(box.value));
    box.parentElement.hidden = !known.get(box.value).member_of.includes(chosen?.name);
  }
}

$("video").addEventListener("change", () => { if ($("video").files[0]) send($("video").files[0]); $("video").value = ""; });
$("form").addEventListener("submit", (event) => event.preventDefault());
$("cancel").addEventListener("click", cancel);
$("again").addEventListener("click", () => { if (sent) send(sent); });
$("form").elements.captioner.addEventListener("change", showAbout);
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files[0]) send(event.dataTransfer.files[0]);
  });
}
window.addEventListener("hashchange", () => { if (location.hash.slice(1) !== following) location.reload(); });
listCaptioners();
if (location.hash.length > 1) follow(location.hash.slice(1));
