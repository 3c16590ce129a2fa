// Takes a film, a word and its moment along: as a link, as text, as a picture, as a clip with heat and caption in it, and as code of the request.

import { joinWords, make } from "../text.js";
import { at, jobPath } from "../jobs/server.js";

const SAID_MS = 2500;
const POSTER = [1200, 630];
const CLIPS = ["mp4", "webp"]; // the best first; not every service writes MP4

export class Share {
  // $: finds an element by its id; view: the film on show.
  constructor($, view) {
    Object.assign(this, { $, view });
    const acts = {
      "copy-link": () => this.copy(location.href, "Link copied"),
      "copy-caption": () => this.copy(this.caption(), "Caption copied"),
      "copy-embed": () => this.copy(this.embedCode(), "Code copied"),
      "save-clip": () => this.saveClip(),
      "save-poster": () => this.savePoster(),
      "save-words": () => this.save(new Blob([this.karaoke()], { type: "text/vtt" }), "words.vtt"),
      "share-phone": () => this.sharePhone(),
      "copy-code": () => this.copy($("code").textContent, "Code copied"),
    };
    for (const [id, act] of Object.entries(acts)) $(id).addEventListener("click", act);
    $("share-phone").hidden = !navigator.share;
    document.addEventListener("pointerdown", ({ target }) => { if (!$("share-more").contains(target)) $("share-more").open = false; });
    $("share-more").addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      $("share-more").open = false;
      $("share-more").firstElementChild.focus();
    });
    for (const language of ["curl", "python", "js"]) $(`code-${language}`).addEventListener("click", () => this.showCode(language));
  }

  // film: one of the list, or an example; job: its document, once it is over.
  open(film, job) {
    [this.film, this.job] = [film, job || film.job];
    this.$("share").hidden = !(job || film.attention);
    this.$("share-more").open = false;
    this.$("copy-embed").hidden = !job;
    this.$("code-box").hidden = !job;
    if (job) this.showCode("curl");
  }

  caption() {
    return joinWords(this.view.evidence?.words.map(({ text }) => text) || []) || this.job?.caption || "";
  }

  // The file's own name, without its ending, for what is saved.
  stem() {
    return (this.job?.filename || this.film?.name || "video").replace(/\.\w+$/, "");
  }

  async copy(text, said) {
    try {
      await navigator.clipboard.writeText(text);
      this.say(said);
    } catch {
      this.say(text); // a browser that forbids it: to be copied by hand
    }
  }

  say(text) {
    clearTimeout(this.fading);
    this.$("shared").textContent = text;
    this.fading = setTimeout(() => { this.$("shared").textContent = ""; }, SAID_MS);
  }

  save(blob, name) {
    const link = make("a", undefined, { href: URL.createObjectURL(blob), download: `${this.stem()}-${name}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), SAID_MS);
  }

  // A picture with a link, for pages that may not show frames of others.
  embedCode() {
    const link = make("a", undefined, { href: location.href });
    link.append(make("img", undefined, { src: `${location.origin}${jobPath(this.job.id, "/poster.png")}`, alt: this.caption(), width: 600, height: 315 }));
    return new XMLSerializer().serializeToString(link).replace(' xmlns="http://www.w3.org/1999/xhtml"', "");
  }

  async savePoster() {
    const { drawFrame } = await import("./clip.js");
    const canvas = new OffscreenCanvas(...POSTER);
    drawFrame(canvas, this.view);
    this.save(await canvas.convertToBlob({ type: "image/png" }), `${this.view.word()?.text || "poster"}.png`);
  }

  // The service's, of a video that is captioned as a whole; what plays here is recorded of an example, a chapter and a part that is looped.
  async saveClip() {
    if (this.view.player.part) return void this.recordClip();
    this.say("Drawing the clip …");
    const clip = await this.drawnClip();
    if (!clip) return void this.recordClip();
    this.save(clip, clip.name);
    return void this.say("Clip saved");
  }

  // The service's clip as a file; null where it has none.
  async drawnClip() {
    for (const kind of this.job?.urls && this.view.chapters.segments.length < 2 ? CLIPS : []) {
      const answer = await fetch(jobPath(this.job.id, `/clip.${kind}`)).catch(() => null);
      if (answer?.ok) return new File([await answer.blob()], `clip.${kind}`, { type: answer.headers.get("Content-Type") });
    }
    return null;
  }

  // With the clip, where the device takes files.
  async sharePhone() {
    const [link, clip] = [{ title: "Reelword", text: this.caption(), url: location.href }, await this.drawnClip()];
    const isTaken = clip && navigator.canShare?.({ files: [clip] });
    navigator.share(isTaken ? { ...link, files: [clip] } : link).catch(() => {});
  }

  async recordClip() {
    this.say("Recording the clip as it plays …");
    const { recordClip } = await import("./clip.js");
    const { blob, ending } = await recordClip(this.view);
    if (blob) this.save(blob, `clip.${ending}`);
    this.say(blob ? "Clip saved" : "This browser cannot record clips: save a poster, or use another browser");
  }

  // WebVTT with the time of each content word inside the cue, never earlier than the one before it.
  karaoke() {
    const stamp = (seconds) => new Date(Math.round(1000 * seconds)).toISOString().slice(11, 23);
    const { words, moments } = this.view.evidence;
    let reached = moments[0].start;
    const timed = words.map(({ text, isContent, moment }) => {
      if (!isContent || moment === null || moments[moment].sought <= reached) return text;
      reached = moments[moment].sought;
      return `<${stamp(reached)}>${text}`;
    });
    return `WEBVTT\n\n${stamp(moments[0].start)} --> ${stamp(moments.at(-1).end)}\n${timed.join(" ")}\n`;
  }

  // This very request, for programs.
  showCode(language) {
    for (const other of ["curl", "python", "js"]) this.$(`code-${other}`).setAttribute("aria-pressed", String(other === language));
    const fields = Object.entries({ ...this.film.options, ...(this.job.model && { captioner: this.job.model.captioner }) });
    const address = `${location.origin}${at("/caption")}`;
    const file = this.job.source_url ? null : this.job.filename || "clip.mp4";
    this.$("code").textContent = CODE[language](address, fields, file, this.job.source_url);
  }
}

const quoted = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;
const CODE = {
  curl: (address, fields, file, url) => [
    "curl", ...fields.map(([name, value]) => `-F ${quoted(`${name}=${value}`)}`), file ? `-F ${quoted(`video=@${file}`)}` : `-F ${quoted(`url=${url}`)}`, "-H 'Prefer: wait=60'", address,
  ].join(" \\\n  "),
  python: (address, fields, file, url) => [
    "import httpx", "", "answer = httpx.post(", `    ${JSON.stringify(address)},`, `    data=${JSON.stringify(Object.fromEntries(url ? [...fields, ["url", url]] : fields))},`,
    ...(file ? [`    files={"video": open(${JSON.stringify(file)}, "rb")},`] : []), "    headers={\"Prefer\": \"wait=60\"},", "    timeout=90,", ")", "print(answer.json()[\"caption\"])",
  ].join("\n"),
  js: (address, fields, file, url) => [
    "const form = new FormData();", ...fields.map(([name, value]) => `form.append(${JSON.stringify(name)}, ${JSON.stringify(String(value))});`),
    file ? "form.append(\"video\", input.files[0]);" : `form.append("url", ${JSON.stringify(url)});`,
    `const answer = await fetch(${JSON.stringify(address)}, {`, "  method: \"POST\", body: form, headers: { Prefer: \"wait=60\" },", "});", "console.log((await answer.json()).caption);",
  ].join("\n"),
};
