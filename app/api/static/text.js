// Says things in words: times, shares, formats of films, how a job waits, and what went wrong.

export const UNDER_WAY = ["unsent", "sending", "queued", "running"]; // states of a video that is not over
const HAN = /[\u3400-\u4dbf\u4e00-\u9fff]/;
const STAGES = {
  fetch: "Fetching the video from its link", decode: "Reading the video",
  extract: "Looking at its frames", caption: "Writing the caption",
};
const CONTAINERS = {
  mov: "MP4 or QuickTime", matroska: "Matroska or WebM", avi: "AVI", gif: "GIF", flv: "Flash video", mpegts: "MPEG transport stream",
  mpeg: "MPEG", asf: "Windows Media", ogg: "Ogg", image2: "Picture", png_pipe: "PNG picture", jpeg_pipe: "JPEG picture", webp: "WebP",
  apng: "Animated PNG", rm: "RealMedia", mxf: "MXF", h264: "raw H.264", hevc: "raw H.265",
};
const CODECS = {
  h264: "H.264", hevc: "H.265", av1: "AV1", vp8: "VP8", vp9: "VP9", mpeg4: "MPEG-4", mpeg2video: "MPEG-2", mpeg1video: "MPEG-1", mjpeg: "Motion JPEG",
  msmpeg4v3: "DivX", prores: "ProRes", theora: "Theora", wmv2: "Windows Media", flv1: "Sorenson", gif: "GIF", aac: "AAC", mp3: "MP3", opus: "Opus",
  vorbis: "Vorbis", flac: "FLAC", ac3: "Dolby Digital", eac3: "Dolby Digital Plus", pcm_s16le: "uncompressed", amr_nb: "AMR", wmav2: "Windows Media",
};
// What the server calls the fields, and what this page calls them.
const LABELS = {
  num_captions: "Captions", beam_size: "Beams", max_length: "Most words", captioner: "captioner", members: "Members", segments: "Chapters", segment_captioner: "captioner of chapters",
  length_penalty: "Weight of length", method: "method", temperature: "temperature", top_k: "top words", top_p: "top share", seed: "seed",
  suppress_unk: "no unknown words", block_trigrams: "no phrase twice", decoding_constraint: "no word twice in a row", name_once: "name things once",
  remove_bad_endings: "no loose ends", group_size: "groups", diversity_lambda: "diversity", fusion_rule: "rule of fusion", category: "category", bars: "bars", explanation: "explanation",
  prompt: "Prompt", "GET /models": "the list under Options", "under known": "below",
};
// Problems that this page says better than a server that speaks to programs: what it is, and what to do.
const PROBLEMS = {
  unreachable: ["The service does not answer.", "Look at your connection. This page goes on by itself once the service is back."],
  upload_stalled: ["The video stopped arriving.", "Send it again when your connection holds."],
  incomplete_file: ["This video is not whole: a part of the file is missing.", "Copy or download it again, look whether it plays to its end, then send it."],
  video_empty: ["There is nothing in this file.", "Open it in a player to see whether it is whole, then send it again."],
  url_not_supported: ["This service fetches no videos from links.", "Save the video on your device and choose it here."],
  url_not_allowed: ["That link leads nowhere, or into a network from which videos are not fetched.", "Look at the link once more, or save the video and choose it here."],
  url_unreachable: ["Nothing answers at that link.", "Open it in another tab: if it plays there, save the video and choose it here."],
  url_not_found: ["There is no video at that link.", "Look whether it is written in full, or whether the video was taken away."],
  url_refused: ["The server at that link does not hand the video out.", "It may ask for a password there: save the video and choose it here."],
  url_too_large: ["The video at that link is larger than this service takes.", "Send a shorter part of it."],
  url_timeout: ["The video took too long to arrive from that link.", "Save it on your device and choose it here."],
  backlog_full: ["Too many videos are waiting already.", "Send yours again in a minute."],
  too_many_connections: ["Too many people are connected at the moment.", "Try again in a minute."],
  queue_unavailable: ["The service cannot take or show videos at the moment.", "Try again in a few seconds; nothing that was accepted is lost."],
  not_on_disk: ["The service could not keep the video safely.", "Try again in a few seconds."],
  storage_full: ["The service has no room for the video.", "Try again later, or tell whoever runs the service."],
  unknown_job: ["This video is not known here any more.", "Answers are kept for a while only. Send the video again."],
  upload_gone: ["The video itself is no longer kept.", "Send it again to have it captioned by another captioner."],
  upload_missing: ["The video itself is no longer kept.", "Send it again."],
  engine_crashed: ["Looking at this video broke the captioner, three times.", "Convert it to MP4 with H.264 and send that."],
  worker_lost: ["The machine that looked at this video went away, three times.", "Send it again; if it happens again, tell whoever runs the service."],
  engine_error: ["The captioner met a fault of its own.", "Send the video again; if it happens again, tell whoever runs the service."],
  worker_error: ["The machine that looks at videos met a fault of its own.", "Send the video again; if it happens again, tell whoever runs the service."],
  deadline_exceeded: ["Looking at this video took too long.", "Send a shorter video."],
  embedding_missing: ["Fusion cannot choose between captions on this service.", "Choose another captioner under Options."],
  too_long: ["The video is longer than this service takes.", "Cut it into parts and send those."],
  too_many_pixels: ["Its picture is larger than this service takes.", "Scale it down to 4K or less."],
  decode_timeout: ["Reading this video took too long.", "Send a shorter or smaller video."],
  decode_memory: ["Reading this video took too much memory.", "Scale it down and send it again."],
  key_missing: ["This service asks for a key.", "Send it again, and give the key that you got from whoever runs it."],
  key_scope: ["Your key does not allow this.", "Ask whoever runs the service for one that does."],
  rate_limited: ["You have asked for much in a short time.", "Wait a minute, then go on."],
  too_many_jobs: ["As many of your videos are under way as your key allows.", "Wait until one is done, then send this one again."],
  internal_error: ["The service has a fault of its own.", "Try again; if it happens again, tell whoever runs the service."],
};
export const STALLED = "The service does not answer. The video is sent again by itself once it does.";
// Problems of the film itself: to send it again as it is would help nobody.
const OF_THE_FILM = new Set([
  "not_a_video", "empty_file", "video_empty", "unsupported_container", "unsupported_codec", "encrypted", "tiled_image", "incomplete_file", "no_video_stream",
  "audio_only", "no_frames", "too_damaged", "too_long", "too_many_pixels", "too_many_frames", "decode_memory", "decoder_crashed", "engine_crashed",
  "upload_too_large", "url_too_large", "url_not_allowed", "url_not_supported",
]);
const FOR_OPERATORS = /REELWORD_|REDIS|curl |ffmpeg|python -m|GET \/|POST \/|form field|worker's log/;

export function mayHelpAgain(problem) {
  return !OF_THE_FILM.has(problem?.code);
}

// [what is wrong, what to do] for a visitor.
export function explain(problem) {
  const found = problem || {};
  if (found.code === "upload_too_large" || found.code === "url_too_large") return tooLarge(found.detail || found.message || "");
  if (found.code === "rate_limited" && found.seconds) return [PROBLEMS.rate_limited[0], `Go on in ${found.seconds} s.`];
  if (PROBLEMS[found.code]) return PROBLEMS[found.code];
  const sentence = inWords(found.detail || found.message || found.title || "Something went wrong.");
  const hint = FOR_OPERATORS.test(found.hint || "") ? "" : inWords(found.hint || "");
  const known = found.known ? `There are: ${found.known.join(", ")}.` : "";
  return [FOR_OPERATORS.test(sentence) ? `${found.title || "Something went wrong"}.` : sentence, [hint, known].filter(Boolean).join(" ")];
}

function tooLarge(sentence) {
  const most = /([\d,]+) bytes/.exec(sentence);
  const size = most ? `: at most ${fileSize(Number(most[1].replaceAll(",", "")))}` : "";
  return [`The video is larger than this service takes${size}.`, "Send a shorter part of it, or a smaller copy."];
}

// A server's sentence with the names that this page has for its fields.
export function inWords(text) {
  return Object.entries(LABELS).reduce((said, [name, label]) => said.replaceAll(name, label), text);
}

export function fileSize(bytes) {
  const [value, unit] = bytes >= 1e9 ? [bytes / 1e9, "GB"] : [bytes / 1e6, "MB"];
  return `${value < 10 ? Math.max(0.1, value).toFixed(1) : Math.round(value)} ${unit}`;
}

export function percent(share) {
  return `${Math.round(100 * share)}\u00a0%`;
}

// 4.5 s, 1:05, 1:02:03.
export function clock(seconds, isShort = seconds < 60) {
  if (isShort) return `${Math.max(0, seconds).toFixed(1)} s`;
  const [whole, two] = [Math.floor(seconds), (value) => String(value).padStart(2, "0")];
  const hours = Math.floor(whole / 3600);
  return `${hours ? `${hours}:` : ""}${hours ? two(Math.floor(whole / 60) % 60) : Math.floor(whole / 60)}:${two(whole % 60)}`;
}

// How the times in a film of that length are written, all of them alike.
export const clockFor = (length) => (seconds) => clock(seconds, length < 60);

function roughly(seconds) {
  if (seconds < 2) return "a moment";
  if (seconds < 60) return `about ${Math.round(seconds)} seconds`;
  return seconds < 5400 ? `about ${Math.max(1, Math.round(seconds / 60))} min` : `about ${Math.round(seconds / 3600)} hours`;
}

// What a job that is not over is doing, or waits for.
export function waiting(job) {
  if (job.state === "running") return STAGES[job.stage] || "Beginning";
  if (job.workers === 0) return "No captioner is connected at the moment. The video is kept, and its turn comes as soon as one is.";
  const ahead = job.place == null ? "Waiting for its turn" : job.place <= 1 ? "Next in line" : `${job.place - 1} before it in line`;
  return job.estimated_seconds == null ? ahead : `${ahead}; it begins in ${roughly(job.estimated_seconds)}`;
}

export function endedAs(state) {
  return { canceled: "Cancelled", expired: "No longer kept", failed: "Not captioned" }[state] || state;
}

export function format(media) {
  const container = media.container && (CONTAINERS[media.container.split(",")[0]] || media.container.split(",")[0].toUpperCase());
  const codec = media.codec && (CODECS[media.codec] || media.codec.toUpperCase());
  return container === codec ? container : [container, codec && `${codec} picture`].filter(Boolean).join(", ");
}

export function sound(media) {
  if (media.has_audio == null) return null;
  return media.has_audio ? CODECS[media.audio_codec] || "yes" : "none";
}

// How much less likely than the first a caption is, from both log-probabilities.
export function likelihood(logarithm, first) {
  const share = Math.exp(logarithm - first);
  if (share > 0.85) return "about as likely";
  if (share > 0.6) return "a little less likely";
  if (share > 0.4) return "half as likely";
  return share > 0.28 ? "a third as likely" : share > 0.18 ? "a quarter as likely" : share > 0.07 ? "a tenth as likely" : "far less likely";
}

// Words of captions that do not tell one shot from another.
const COMMON = new Set(`a an the and or of in on at by for from with to into onto out off up down over under as is are was were be being been has have his her
  its their it he she they them this that there some other another one two three top front back side next near around behind through while group close very sitting standing looking`.split(/\s+/));

// What a film of many shots shows: "38 shots: cars, snow, people", by the words that most of their captions have; empty for a film of one.
export function sumUp(captions, most = 4) {
  if (captions.length < 2) return "";
  const counts = new Map();
  for (const word of captions.flatMap((caption) => [...new Set(caption.toLowerCase().split(/[^\p{L}\p{N}]+/u))])) {
    if (word.length > 1 && !COMMON.has(word)) counts.set(word, (counts.get(word) || 0) + 1);
  }
  const words = [...counts].sort((a, b) => b[1] - a[1]).slice(0, most).map(([word]) => word);
  return `${captions.length} shots${words.length ? `: ${words.join(", ")}` : ""}`;
}

export const isSum = (caption) => /^\d+ shots/.test(caption);

// Whether a text has a word that begins like each of the words looked for: "man" does not find "woman".
export function hasWords(text, words) {
  const there = text.toLowerCase().split(/[^\p{L}\p{N}]+/u);
  return words.every((word) => there.some((each) => each.startsWith(word)));
}

export function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

export function setCurrent(element, isCurrent) {
  if (isCurrent) element.setAttribute("aria-current", "true");
  else element.removeAttribute("aria-current");
}

// What stands between two words of a caption: "man 's" is written "man's", and Chinese without spaces.
export const spaceBetween = (word, following) => (following.startsWith("'") || (HAN.test(word.slice(-1)) && HAN.test(following[0])) ? "" : " ");

export const joinWords = (words) => words.map((word, k) => (k ? spaceBetween(words[k - 1], word) : "") + word).join("");
