// Gives the page one shape for what an answer says of its words, whichever explanation it carries:
// {kind, words: [{text, isContent, strengths, moment, places, isPlaceless, label}], moments: [{start, end, middle, sought}], spatial}.
// strengths: by moment, 0 for an even share of the word's weight or less, 1 for the heaviest. label: {moment, time, end, text, box}, what the
// word was recognised by, where its moment is the label's.

const CLEARLY = 1.15; // even shares that a moment must have before a word is lit by it

export function readEvidence(document, sampled = []) {
  const explained = document.evidence || document;
  const moments = momentsOf(document, sampled);
  const words = document.words.map((text, k) => ({
    text,
    isContent: document.content?.[k] ?? true,
    strengths: strengthsOf(explained.temporal[k] || moments.map(() => 0)),
    moment: explained.moments ? explained.moments[k] : momentOf(explained, k),
    places: explained.unplaced?.[k] ? null : explained.spatial?.weights[k] || null,
    isPlaceless: Boolean(explained.unplaced?.[k]),
  }));
  if (document.evidence) words.forEach((word, k) => useLabel(word, labelOf(document, k), moments));
  return { kind: document.evidence ? "evidence" : "attention", words, moments, spatial: explained.spatial };
}

// What a word was recognised by; the moments of the other parts are the attention's.
function labelOf({ extras = [] }, word) {
  return extras.filter(({ kind, words }) => kind === "moments" && words).flatMap(({ words }) => words[word]).find(({ text }) => text);
}

// A word that is all along but for a label is of the label's time, and most of the label's own moment. Of one that has a moment the label
// counts where it is of the same one, or has a box in another that the word needs more than evenly.
function useLabel(word, label, moments) {
  if (!label || !(word.moment === null || word.moment === label.moment || (label.box && word.strengths[label.moment] > 0))) return;
  if (word.moment === null) word.strengths = moments.map(({ start, end }, k) => (k === label.moment ? 1 : start < (label.end ?? label.time) && end > label.time ? 0.4 : 0));
  Object.assign(word, { label, moment: label.moment, isPlaceless: word.isPlaceless && !label.box });
}

function strengthsOf(weights) {
  const [even, top] = [1 / weights.length, Math.max(...weights)];
  return weights.map((weight) => (top > even * CLEARLY ? Math.max(0, (weight - even) / (top - even)) : 0));
}

// Each moment with the time of the sampled frame that shows it.
function momentsOf({ parts, times }, sampled) {
  return (parts || times).map(([start, end], k) => {
    const middle = (times[k][0] + times[k][1]) / 2;
    const frame = sampled.filter((time) => start <= time && time <= end).reduce((best, time) => (Math.abs(time - middle) < Math.abs(best - middle) ? time : best), Infinity);
    return { start, end, middle: (start + end) / 2, sought: Number.isFinite(frame) ? frame : (start + end) / 2 };
  });
}

// The heaviest moment; null where none stands out.
function momentOf({ temporal, spread }, word) {
  const weights = temporal[word];
  return weights && weights.length > 1 && !spread?.[word] ? strongest(weights) : null;
}

export function strongest(weights) {
  return weights.reduce((best, weight, k) => (weight > weights[best] ? k : best), 0);
}

// Between which two moments a time lies, and how far from the first to the second: [first, second, share].
export function blend(moments, seconds) {
  const after = moments.findIndex(({ middle }) => middle > seconds);
  if (after === 0) return [0, 0, 0];
  if (after < 0) return [moments.length - 1, moments.length - 1, 0];
  const [before, next] = [moments[after - 1].middle, moments[after].middle];
  return [after - 1, after, (seconds - before) / Math.max(1e-6, next - before)];
}

// How strongly a word stands on a time.
export function strengthAt({ strengths }, moments, seconds) {
  const [first, second, share] = blend(moments, seconds);
  return strengths[first] * (1 - share) + strengths[second] * share;
}

// Weights over places at a time, blended between its moments; with boxes, which differ from moment to moment, those of the nearer one.
// Where a moment has none, those of the word's own moment.
export function placesAt({ places, moment, label }, evidence, seconds) {
  if (label?.box) return label.time <= seconds && seconds <= label.end ? { weights: [1], boxes: [label.box] } : null;
  if (!places || !evidence.spatial) return null;
  const [first, second, share] = blend(evidence.moments, seconds);
  const near = [share < 0.5 ? first : second, moment ?? -1, places.findIndex(Boolean)].find((k) => places[k]);
  if (near === undefined) return null;
  if (evidence.spatial.kind === "boxes") return { weights: places[near], boxes: evidence.spatial.boxes[near] };
  if (!places[first] || !places[second]) return { weights: places[near] };
  return { weights: places[first].map((weight, k) => weight * (1 - share) + places[second][k] * share) };
}
