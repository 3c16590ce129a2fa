// What else is known of a film: facts about the file, warnings, the captioner's other sentences, and files to take along.

import { clock, format, likelihood, make, sound } from "../text.js";
import { jobPath } from "../jobs/server.js";

// elements: facts, warnings, others, othersBox, png, attention, job. title(captioner): its name for people.
export function showFacts(elements, job, hasAttention, title) {
  elements.facts.replaceChildren(...rowsOf(job, title).filter(([, value]) => value).flatMap(([name, value]) => [make("dt", name), make("dd", value)]));
  const warnings = job.warnings || [];
  elements.warnings.hidden = !warnings.length;
  elements.warnings.replaceChildren(...warnings.map(({ message }) => make("li", message)));
  showOthers(elements, job.captions || []);
  elements.png.href = jobPath(job.id, "/attention.png");
  elements.attention.href = jobPath(job.id, "/attention");
  elements.job.href = jobPath(job.id);
  elements.png.hidden = elements.attention.hidden = !hasAttention;
}

function rowsOf({ filename, source_url: address, media, model, timings, metadata }, title) {
  const found = media || {};
  const turned = found.rotation ? ", turned upright" : "";
  return [
    ["File", filename],
    ["Link", address],
    ["Kind", format(found)],
    ["Picture", found.width && `${found.width} × ${found.height}${turned}`],
    ["Length", found.duration == null ? null : clock(found.duration) + (found.times_estimated ? ", estimated" : "")],
    ["Frames", found.frames == null ? null : `${found.frames.toLocaleString("en")}${found.frames_lost ? `, ${found.frames_lost} of them unreadable` : ""}`],
    ["Sound", sound(found)],
    ["Captioner", model && [title(model.captioner), model.members && `made of ${Object.keys(model.members).map(title).join(", ")}`].filter(Boolean).join(", ")],
    ["Took", timings?.total == null ? null : `${clock(timings.total)}${timings.queue > 1 ? `, of which it waited ${clock(timings.queue)}` : ""}`],
    ["Notes", metadata && Object.keys(metadata).length ? Object.entries(metadata).map(([name, value]) => `${name}: ${value}`).join(", ") : null],
  ];
}

function showOthers({ others, othersBox }, captions) {
  const logarithm = (caption) => caption.words.reduce((sum, word) => sum + word.logprob, 0);
  othersBox.hidden = captions.length < 2;
  others.replaceChildren(...captions.slice(1).map((caption) => {
    const line = make("li", `${caption.text} `);
    line.append(make("span", likelihood(logarithm(caption), logarithm(captions[0])), { class: "quiet" }));
    return line;
  }));
}
