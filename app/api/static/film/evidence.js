// Gives the page one shape for what an answer says of its words, whichever explanation it carries:
// {kind, words: [{text, isContent, weights, moment, places, box}], moments: [{start, end, middle, sought}], spatial, extras}.

const CLEARLY = 1.15; // even shares that a moment must have before a word is lit by it

export function readEvidence(document, sampled = []) {
  const explained = document.evidence || document;
  const moments = momentsOf(document, sampled);
  const words = document.words.map((text, k) => ({
    text,
    isContent: document.content?.[k] ?? true,
    weights: explained.temporal[k],
    moment: explained.moments ? explained.moments[k] : momentOf(explained, k),
    places: explained.spatial?.weights[k] || null,
    box: explained.boxes?.[k] || null,
  }));
  return { kind: document.evidence ? "evidence" : "attention", words, moments, spatial: explained.spatial, extras: document.extras || [] };
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

// How strongly a word stands on a time: 0 for its even share or less, 1 for its heaviest moment.
export function strengthAt({ weights }, moments, seconds) {
  if (!weights) return 0;
  const [first, second, share] = blend(moments, seconds);
  const [even, top] = [1 / weights.length, Math.max(...weights)];
  const weight = weights[first] * (1 - share) + weights[second] * share;
  return top > even * CLEARLY ? Math.max(0, (weight - even) / (top - even)) : 0;
}

// Weights over places at a time, blended between its moments; with boxes, which differ from moment to moment, those of the nearer one.
// Where a moment has none, those of the word's own moment.
export function placesAt({ places, moment }, evidence, seconds) {
  if (!places || !evidence.spatial) return null;
  const [first, second, share] = blend(evidence.moments, seconds);
  const near = [share < 0.5 ? first : second, moment ?? -1, places.findIndex(Boolean)].find((k) => places[k]);
  if (near === undefined) return null;
  if (evidence.spatial.kind === "boxes") return { weights: places[near], boxes: evidence.spatial.boxes[near] };
  if (!places[first] || !places[second]) return { weights: places[near] };
  return { weights: places[first].map((weight, k) => weight * (1 - share) + places[second][k] * share) };
}
