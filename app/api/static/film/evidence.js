// Gives the page one shape for what an answer says of its words, whichever explanation it carries:
// {kind, words: [{text, isContent, strengths, moment, start, end, box, places, isPlaceless}], moments: [{start, end, middle, sought}], spatial}.
// strengths: by moment, 0 for an even share of the word's weight or less, 1 for the heaviest. moment, start, end and box are the service's own
// ("located"); box is a label's, which holds from start to end.

const CLEARLY = 1.15; // even shares that a moment must have before a word is lit by it

export function readEvidence(document, sampled = []) {
  const explained = document.evidence || document;
  const moments = momentsOf(document, sampled);
  const words = document.words.map((text, k) => ({
    text,
    isContent: document.content?.[k] ?? true,
    strengths: strengthsOf(explained.temporal[k] || moments.map(() => 0)),
    ...placeOf(document, k),
    places: explained.unplaced?.[k] ? null : explained.spatial?.weights[k] || null,
    isPlaceless: Boolean(explained.unplaced?.[k]),
  }));
  for (const [k, word] of words.entries()) {
    if (word.box) word.isPlaceless = false;
    if (document.evidence?.moments[k] === null && word.moment !== null) word.strengths = strengthsOfLabel(word, moments);
  }
  return { kind: document.evidence ? "evidence" : "attention", words, moments, spatial: explained.spatial };
}

// Answers that were kept before services told it name a moment alone. The evidence's own boxes are drawn with those beside them, by weight.
function placeOf({ located, evidence, times }, word) {
  const { moment, start, end, box } = located?.[word] || { moment: evidence?.moments[word] ?? null };
  const [first, last] = moment === null ? [] : times[moment];
  return { moment, start: start ?? first, end: end ?? last, box: box && String(box) !== String(evidence?.boxes[word]) ? box : null };
}

// A word that is all along but for a label is of the label's time, and most of the label's own moment.
function strengthsOfLabel(word, moments) {
  return moments.map(({ start, end }, k) => (k === word.moment ? 1 : start < word.end && end > word.start ? 0.4 : 0));
}

function strengthsOf(weights) {
  const [even, top] = [1 / weights.length, Math.max(...weights)];
  return weights.map((weight) => (top > even * CLEARLY ? Math.max(0, (weight - even) / (top - even)) : 0));
}

// Each moment with the time of the sampled frame that shows it; of a shot whose one frame is elsewhere the middle.
function momentsOf({ parts, times }, sampled) {
  return (parts || times).map(([start, end], k) => {
    const frame = sampled[frameOf(sampled, times[k])];
    return { start, end, middle: (start + end) / 2, sought: frame >= Math.min(start, times[k][0]) && frame <= Math.max(end, times[k][1]) ? frame : (start + end) / 2 };
  });
}

// The sampled frame nearest the middle of a moment, of those inside it where there are any.
export function frameOf(sampled, [start, end]) {
  const all = sampled.map((time, k) => ({ time, k }));
  const inside = all.filter(({ time }) => (start <= time && time < end) || time === start);
  const distance = ({ time }) => Math.abs(time - (start + end) / 2);
  return (inside.length ? inside : all).reduce((best, one) => (distance(one) < distance(best) ? one : best), all[0] ?? { k: 0, time: 0 }).k;
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
export function placesAt({ places, moment, start, end, box }, evidence, seconds) {
  if (box) return start <= seconds && seconds <= end ? { weights: [1], boxes: [box] } : null;
  if (!places || !evidence.spatial) return null;
  const [first, second, share] = blend(evidence.moments, seconds);
  const near = [share < 0.5 ? first : second, moment ?? -1, places.findIndex(Boolean)].find((k) => places[k]);
  if (near === undefined) return null;
  if (evidence.spatial.kind === "boxes") return { weights: places[near], boxes: evidence.spatial.boxes[near] };
  if (!places[first] || !places[second]) return { weights: places[near] };
  return { weights: places[first].map((weight, k) => weight * (1 - share) + places[second][k] * share) };
}
