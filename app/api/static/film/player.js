// Shows the film: as a video where the browser can play it, else the frames that the captioner saw, each for its time.

import { clockFor } from "../text.js";

const A_TOUCH = 0.001; // behind a frame's time, so that it and not the one before is shown

export class Player {
  // elements: stage, video, slide (an image), note, play, sound, time. told: moved(seconds), kind() where what it shows has changed.
  constructor(elements, told) {
    Object.assign(this, elements);
    this.told = told;
    this.sources = [];
    this.frames = []; // {time, url}, rising
    this.ready = false; // whether the video plays here
    this.kind = "none"; // or "video", "frames", "trying"
    this.at = 0;
    this.length = 0;
    this.ticking = 0;
    this.video.muted = true;
    this.video.addEventListener("loadedmetadata", () => this.loaded());
    this.video.addEventListener("error", () => this.nextSource());
    for (const kind of ["play", "pause", "ended"]) this.video.addEventListener(kind, () => this.showPlaying());
    for (const kind of ["timeupdate", "seeked"]) this.video.addEventListener(kind, () => this.moved());
    this.play.addEventListener("click", () => this.toggle());
    this.stage.addEventListener("click", () => this.toggle());
    this.sound.addEventListener("click", () => { this.video.muted = !this.video.muted; this.showSound(); });
  }

  // sources: addresses of the film, tried one after the other. duration, size: [width, height], where known.
  open({ sources = [], frames = [], duration = 0, size = null, begin = false }) {
    this.pause();
    this.tried = new Set();
    [this.ready, this.isTrying] = [false, false];
    [this.sources, this.at, this.length, this.begin, this.hasSound] = [[...sources], 0, duration, begin, false];
    this.showFrames(frames);
    this.fit(size || [16, 9]);
    this.nextSource();
  }

  // What has become known since, without a new beginning.
  add({ sources = [], frames = [], duration = 0, size = null, hasSound = false }) {
    this.hasSound = hasSound;
    this.length = (this.ready && this.video.duration) || duration || this.length;
    this.showFrames(frames);
    if (this.ready) return;
    if (size) this.fit(size);
    this.sources = sources.filter((source) => !this.tried.has(source));
    if (!this.isTrying) this.nextSource();
    this.seek(this.at);
  }

  nextSource() {
    const source = this.sources.shift();
    [this.ready, this.isTrying] = [false, Boolean(source)];
    if (source) {
      this.tried.add(source);
      this.video.src = source;
    } else if (this.video.getAttribute("src")) {
      this.video.removeAttribute("src");
      this.video.load();
    }
    this.video.hidden = true;
    this.tellKind();
  }

  loaded() {
    if (!this.video.videoWidth) return void this.nextSource(); // its sound alone can be played
    [this.ready, this.isTrying] = [true, false];
    this.length = Number.isFinite(this.video.duration) ? this.video.duration : this.length;
    this.fit([this.video.videoWidth, this.video.videoHeight]);
    this.video.hidden = false;
    this.tellKind();
    this.seek(this.at);
    if (this.begin) this.video.play().catch(() => {}); // a browser may forbid it
    this.begin = false;
  }

  tellKind() {
    const kind = this.ready ? "video" : this.frames.length ? "frames" : this.isTrying ? "trying" : "none";
    this.kind = kind;
    this.slide.hidden = kind !== "frames";
    this.note.hidden = kind !== "none";
    this.play.disabled = kind === "none" || kind === "trying";
    this.showSound();
    this.told.kind();
  }

  showFrames(frames) {
    this.frames = frames;
    if (frames.length) this.showSlide();
    this.tellKind();
  }

  fit([width, height]) {
    this.stage.style.setProperty("--ratio", String(width / height));
  }

  get isPlaying() {
    return this.ready ? !this.video.paused && !this.video.ended : this.ticking !== 0;
  }

  toggle() {
    if (this.isPlaying) this.pause();
    else this.start();
  }

  start() {
    if (this.at >= this.length - 0.05) this.seek(0);
    if (this.ready) return void this.video.play().catch(() => {});
    if (!this.frames.length || this.ticking) return;
    let before = performance.now();
    const tick = (now) => {
      this.at += (now - before) / 1000;
      before = now;
      if (this.at >= this.length) return void (this.at = this.length, this.pause());
      this.moved();
      this.ticking = requestAnimationFrame(tick);
    };
    this.ticking = requestAnimationFrame(tick);
    this.showPlaying();
  }

  pause() {
    this.video.pause();
    cancelAnimationFrame(this.ticking);
    this.ticking = 0;
    this.showPlaying();
  }

  seek(seconds) {
    this.at = Math.max(0, Math.min(seconds, this.length || seconds));
    if (this.ready) this.video.currentTime = Math.min(this.at + A_TOUCH, Math.max(0, this.length - A_TOUCH));
    this.moved(this.at);
  }

  moved(to) {
    this.at = to ?? (this.ready ? this.video.currentTime : this.at);
    if (!this.ready && this.frames.length) this.showSlide();
    const clock = clockFor(this.length);
    this.time.textContent = this.length ? `${clock(this.at)} / ${clock(this.length)}` : "";
    this.told.moved(this.at);
  }

  showSlide() {
    const nearest = this.frames.reduce((best, frame) => (Math.abs(frame.time - this.at) < Math.abs(best.time - this.at) ? frame : best));
    if (this.slide.getAttribute("src") !== nearest.url) this.slide.src = nearest.url;
  }

  showPlaying() {
    const playing = this.isPlaying;
    this.play.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.play.classList.toggle("is-playing", playing);
    cancelAnimationFrame(this.following);
    const look = () => { if (this.isPlaying && this.ready) { this.moved(); this.following = requestAnimationFrame(look); } };
    if (playing && this.ready) look();
  }

  showSound() {
    this.sound.hidden = !this.ready || !this.hasSound;
    this.sound.setAttribute("aria-pressed", String(!this.video.muted));
  }
}
