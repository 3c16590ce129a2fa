// What a captioner has of its own, as its paper shows it: docs/api.md lists the members of "extras".

const percent = (share) => `${Math.round(100 * share)} %`;

// Below the words, for the caption as a whole.
export function ownView(job, { extras, times }) {
  const parts = [];
  if (extras.candidates) parts.push(heading("Captions that competed"), candidates(extras.candidates));
  if (extras.key_frame) parts.push(heading("Watched twice"), steps(job, extras, times));
  if (extras.members) parts.push(paragraph(`Written together by ${extras.members.join(", ")}; where it looked is ${extras.members[0]}'s.`));
  return parts;
}

// Beside the frame, for the word that was chosen.
export function wordView({ extras }, word) {
  if (extras.layers) {
    const weights = extras.layers.weights[word];
    return weights ? extras.layers.names.map((name, k) => measured(`${name} ${percent(weights[k])}`, weights[k])) : [item("The first word comes from the video as a whole.")];
  }
  if (extras.branch) {
    const [followed, picked] = extras.branch[word][0];
    return [measured(`followed through time ${percent(followed)}`, followed), measured(`of one frame ${percent(picked)}`, picked)];
  }
  if (extras.selected) return [item(`Key frames at ${extras.selected[word].map(({ time }) => `${time.toFixed(1)} s`).join(" and ")}`)];
  return [];
}

// The moments that are marked on the timeline.
export function keyMoments({ extras }, word) {
  if (extras.selected) return extras.selected[word].map(({ moment }) => moment);
  return [];
}

function candidates(all) {
  const list = make("ol");
  list.className = "candidates";
  list.setAttribute("aria-label", "Captions that competed, the best first");
  const [low, high] = [Math.min(...all.map(({ merit }) => merit)), Math.max(...all.map(({ merit }) => merit))];
  list.append(...all.map(({ text, captioner, merit }) => measured(`${text} (${captioner}, ${merit.toFixed(2)})`, high > low ? (merit - low) / (high - low) : 1)));
  return list;
}

function steps(job, extras, times) {
  const both = make("div");
  both.className = "steps";
  both.append(
    step(job, times, extras.default_key_frame, `From the middle: “${extras.step_1 ?? ""}”`),
    step(job, times, extras.key_frame, `From the key frame that it found: “${extras.step_2 ?? ""}”`),
  );
  return both;
}

function step(job, times, { moment, time }, said) {
  const [figure, image] = [make("figure"), make("img")];
  image.src = `/jobs/${encodeURIComponent(job.id)}/frames/${frameOf(job.sampled, times[moment])}.jpg`;
  image.alt = `Frame at ${time.toFixed(1)} s`;
  figure.append(image, make("figcaption", `${time.toFixed(1)} s. ${said}`));
  return figure;
}

// The sampled frame nearest the middle of a moment, of those inside it where there are any.
export function frameOf(sampled, [start, end]) {
  const all = sampled.map((time, k) => ({ time, k }));
  const inside = all.filter(({ time }) => (start <= time && time < end) || time === start);
  const distance = ({ time }) => Math.abs(time - (start + end) / 2);
  return (inside.length ? inside : all).reduce((best, one) => (distance(one) < distance(best) ? one : best)).k;
}

function measured(text, share) {
  const [line, meter] = [make("li"), make("meter")];
  Object.assign(meter, { min: 0, max: 1, value: share });
  line.append(meter, ` ${text}`);
  return line;
}

const item = (text) => make("li", text);
const heading = (text) => make("h3", text);
const paragraph = (text) => make("p", text);

function make(tag, text) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  return element;
}
