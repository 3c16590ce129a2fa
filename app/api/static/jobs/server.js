// Talks to the service: questions, films sent with their progress, a job followed until it is over, and the key where one is needed.

const POLL_MS = [150, 250, 400, 700, 1000, 1500, 2000];
const LOST_MS = [1000, 2000, 3000, 5000];
const LOOK_MS = 15000; // a look at the job beside its events, which a proxy may hold back
const LARGE = 8 * 2 ** 20; // bytes from which a file is sent by tus: after a break it goes on where it was
const EVENTS_LOST = 3; // times that a stream of events may break before it is given up for asking
const UNREACHABLE = { code: "unreachable" };
const KEYLESS = ["/session", "/models"]; // for which nobody is asked for a key: the examples play without

const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
let unlock = async () => false; // asks the visitor for a key; whether there is one now

export function onLocked(ask) {
  unlock = ask;
}

// A path of the service as a browser asks for it: the service may lie below a path, and the link to the page's begin tells it.
const ROOT = document.getElementById("home").pathname.replace(/\/$/, "");
export const at = (path) => ROOT + path;

// path: one of the service's, or the whole address of a file. {status, body}: status 0 where nothing answered; the body is what was asked for, or a problem.
export async function ask(path, init = {}) {
  let answer;
  try {
    answer = await fetch(path instanceof URL ? path : at(path), init);
  } catch {
    return { status: 0, body: UNREACHABLE };
  }
  const body = withWait(await answer.json().catch(() => (answer.ok ? {} : null)), answer.headers.get("Retry-After"));
  if (answer.status === 401 && !KEYLESS.includes(path) && await unlock(body)) return ask(path, init);
  return { status: answer.status, body };
}

// A problem, with the seconds after which it may be over; what a proxy says in its own way is no answer.
const withWait = (body, seconds) => (body?.code && seconds ? { ...body, seconds: Number(seconds) } : body || UNREACHABLE);

export const isGood = ({ status }) => status >= 200 && status < 300;
const pathOf = (id, rest = "") => `/jobs/${encodeURIComponent(id)}${rest}`;
export const jobPath = (id, rest = "") => at(pathOf(id, rest));
export const getModels = () => ask("/models");
export const getJob = (id) => ask(pathOf(id));
export const cancelJob = (id) => ask(pathOf(id), { method: "DELETE", keepalive: true });
export const getAttention = (id) => ask(pathOf(id, "/attention"));
export const getSegmentAttention = (id, number) => ask(pathOf(id, `/segments/${number}/attention`));
export const searchMoments = (words, ids, limit) => ask(`/search?${new URLSearchParams([["q", words], ["limit", limit], ...ids.map((id) => ["job", id])])}`);
export const recaption = (id, options) => ask(pathOf(id, "/recaption"), { method: "POST", body: formOf(options) });
export const sendKey = (key) => ask("/session", { method: "POST", body: new URLSearchParams({ key }) });
export const sendVerdict = (id, said) => ask(pathOf(id, "/verdicts"), { method: "POST", body: JSON.stringify(said), headers: { "Content-Type": "application/json" } });
export const forgetKey = () => ask("/session", { method: "DELETE" });
export const frameUrl = (id, number) => jobPath(id, `/frames/${number}.jpg`);
export const segmentFrameUrl = (id, number) => jobPath(id, `/segments/${number}/frame.jpg`);

function formOf(options, last = {}) {
  const form = new FormData();
  for (const [name, value] of Object.entries({ ...options, ...last })) form.append(name, value);
  return form;
}

// Sends a film, or the address of one. The file stands last, so that a wrong option is known to be wrong before it is sent.
// key: of this sending, however often it is tried. Returns {answer: promise of {status, body}, stop}.
export function sendFilm(film, options, key, onPart) {
  const request = new XMLHttpRequest();
  const { file, url } = film;
  const attempt = async () => {
    const send = (video, tell) => upload(request, "POST", "/caption", { "Idempotency-Key": key }, formOf(options, video), tell);
    const sent = file?.size >= LARGE ? await sendParts(film, request, onPart) : null;
    if (sent?.id) return send({ file: sent.id }, () => {});
    return !sent || sent.body.code === "too_many_files" ? send(file ? { video: file } : { url }, onPart) : sent;
  };
  const answer = attempt().then(async (found) => (found.status === 401 && await unlock(found.body) ? attempt() : found));
  const stop = () => {
    request.isStopped = true;
    request.abort();
    if (film.sentTo) ask(film.sentTo, { method: "DELETE", keepalive: true });
  };
  return { answer, stop };
}

// Sends a large file, or what has not come of it yet. Returns {id} of the file, or the answer that refused it.
async function sendParts(film, request, onPart) {
  const { file } = film;
  const name = btoa(String.fromCharCode(...new TextEncoder().encode(file.name)));
  const headers = { "Tus-Resumable": "1.0.0", "Upload-Length": file.size, "Upload-Metadata": `filename ${name}` };
  const begun = await (film.sentTo ? ask(film.sentTo) : ask("/files", { method: "POST", headers }));
  if (begun.status === 404) film.sentTo = null; // it was away for too long; the next attempt begins anew
  if (!isGood(begun)) return begun.status === 404 ? { status: 0, body: UNREACHABLE } : begun;
  const { id, received } = begun.body;
  film.sentTo = `/files/${id}`;
  if (received === file.size) return { id };
  const part = { "Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream", "Upload-Offset": received };
  const tell = (share) => onPart((received + share * (file.size - received)) / file.size);
  const answer = await upload(request, "PATCH", film.sentTo, part, file.slice(received), tell);
  return isGood(answer) ? { id } : answer;
}

function upload(request, method, path, headers, body, onPart) {
  return new Promise((resolve) => {
    request.open(method, at(path));
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.responseType = "json";
    request.upload.onprogress = (event) => onPart(event.total ? event.loaded / event.total : 0);
    request.onload = () => resolve({ status: request.status, body: withWait(request.response || (request.status === 204 ? {} : null), request.getResponseHeader("Retry-After")) });
    request.onerror = () => resolve({ status: 0, body: UNREACHABLE });
    request.onabort = request.onerror;
    if (request.isStopped) request.onabort();
    else request.send(body);
  });
}

// Follows a job until it is over, by events where the service has them and by asking where not.
// told: job(document), segment(line), over(document or problem), connection("good" | "lost"). Returns what stops it.
export function follow(id, told) {
  const watch = { id, told, isStopped: false, isLost: false, streamsLost: 0 };
  run(watch);
  return () => { watch.isStopped = true; watch.wake?.(); };
}

// An address of an answer as this page asks for it: a proxy may not say by which scheme it is asked.
export const inPlace = (address) => address && new URL(address, location.href).pathname;

async function run(watch) {
  for (let turn = 0, silent = 0; !watch.isStopped;) {
    const { status, body } = await getJob(watch.id);
    if (watch.isStopped) return;
    if (status === 0 || status >= 500 || status === 429) {
      if (status !== 429) connection(watch, "lost");
      await sleep(LOST_MS[Math.min(silent, LOST_MS.length - 1)]);
      silent += 1;
      continue;
    }
    silent = 0;
    connection(watch, "good");
    if (!body?.state || !["queued", "running"].includes(body.state)) return void watch.told.over(body);
    watch.told.job(body);
    if (body.urls?.events && watch.streamsLost < EVENTS_LOST) await listen(watch, inPlace(body.urls.events));
    else await sleep(POLL_MS[Math.min(turn, POLL_MS.length - 1)]);
    turn += 1;
  }
}

function connection(watch, state) {
  if ((state === "lost") === watch.isLost) return;
  watch.isLost = state === "lost";
  watch.told.connection(state);
}

// Until the stream ends, breaks, or says nothing for LOOK_MS; then the job is asked for itself.
function listen(watch, address) {
  return new Promise((resolve) => {
    const source = new EventSource(address);
    let timer = 0;
    const done = () => { clearTimeout(timer); source.close(); resolve(); };
    const heard = () => { clearTimeout(timer); timer = setTimeout(done, LOOK_MS); };
    const read = (tell) => (event) => {
      heard();
      if (watch.isStopped) return done();
      try { tell(JSON.parse(event.data)); } catch { /* what is no JSON says nothing */ }
      return undefined;
    };
    watch.wake = done;
    source.addEventListener("state", read((job) => { watch.streamsLost = 0; watch.told.job(job); }));
    source.addEventListener("segment", read((segment) => watch.told.segment(segment)));
    source.addEventListener("end", done);
    source.onerror = () => { watch.streamsLost += 1; done(); };
    heard();
  });
}
