// Shows the film: as a video where the browser can play it, else the frames that the captioner saw, each for its time.

import { clockFor } from "../text.js";

const A_TOUCH = 0.001; // behind a frame's time, so that it and not the one before is shown
const SHORT = 15; // seconds below which a film plays again and again
const FRAMES_A_SECOND = 25; // that . and , step by

export class Player {
  // elements: screen with the backdrop (a small canvas) and the stage in it, video, slide (an image), note, play, sound, loop, time. told: moved(seconds), kind() where what it shows has changed, began() by hand.
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
    for (const kind of ["play", "pause"]) this.video.addEventListener(kind, () => this.showPlaying());
    this.video.addEventListener("ended", () => { if (this.isLooping) { this.seek(this.part?.[0] || 0); this.video.play().catch(() => {}); } else this.showPlaying(); });
    for (const kind of ["timeupdate", "seeked"]) this.video.addEventListener(kind, () => this.moved());
    for (const [picture, kind] of [[this.video, "loadeddata"], [this.slide, "load"]]) picture.addEventListener(kind, () => this.paintBackdrop());
    this.play.addEventListener("click", () => this.toggle());
    this.stage.addEventListener("click", (event) => { if (!event.target.closest("button")) this.toggle(); });
    this.sound.addEventListener("click", () => this.mute());
    this.loop.addEventListener("click", () => this.setLoop(!this.isLooping));
  }

  // sources: addresses of the film, tried one after the other. duration, size: [width, height], where known.
  open({ sources = [], frames = [], duration = 0, size = null, begin = false }) {
    this.pause();
    this.tried = new Set();
    [this.ready, this.isTrying] = [false, false];
    [this.sources, this.at, this.length, this.begin, this.hasSound, this.zero] = [[...sources], 0, duration, begin, false, 0];
    [this.part, this.isLooping, this.isLoopChosen] = [null, false, false];
    this.setRate(1);
    this.showFrames(frames);
    this.fit(size || [16, 9]);
    this.nextSource();
  }

  // What has become known since, without a new beginning.
  add({ sources = [], frames = [], duration = 0, size = null, hasSound = false, zero = null }) {
    this.hasSound = hasSound;
    this.zero = zero ?? this.zero;
    this.length = (this.ready && this.video.duration - this.zero) || duration || this.length;
    this.showFrames(frames);
    this.loopIfShort();
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
    this.length = Number.isFinite(this.video.duration) ? this.video.duration - this.zero : this.length;
    this.fit([this.video.videoWidth, this.video.videoHeight]);
    this.loopIfShort();
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
    if (this.isPlaying) return void this.pause();
    this.told.began();
    this.start();
    return undefined;
  }

  // part: [start, end] that is played again and again, else the whole.
  setLoop(isLooping, part = null) {
    [this.isLooping, this.part, this.isLoopChosen] = [isLooping, isLooping ? part : null, true];
    this.loop.setAttribute("aria-pressed", String(isLooping));
    this.told.looped(this.part);
  }

  // Short films play again and again unless the visitor has chosen.
  loopIfShort() {
    if (!this.isLoopChosen && this.length && this.length < SHORT !== this.isLooping) { this.setLoop(this.length < SHORT); this.isLoopChosen = false; }
  }

  setRate(rate) {
    this.rate = Math.min(2, Math.max(0.25, rate));
    this.video.defaultPlaybackRate = this.video.playbackRate = this.rate;
  }

  mute() {
    this.video.muted = !this.video.muted;
    this.showSound();
  }

  fullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.screen.requestFullscreen?.();
  }

  // By so many frames; those that stand for a film that cannot be played are its sampled ones.
  step(by) {
    this.pause();
    this.seek(this.at + by / FRAMES_A_SECOND);
  }

  // Where the part that is looped ends, or the film.
  wrap() {
    const [start, end] = this.part || [0, this.length];
    if (!this.isLooping || !this.isPlaying || (this.at < end - 0.02 && this.at >= start - 0.3)) return false;
    this.seek(start);
    return true;
  }

  start() {
    if (this.at >= this.length - 0.05) this.seek(0);
    if (this.ready) return void this.video.play().catch(() => {});
    if (!this.frames.length || this.ticking) return;
    let before = performance.now();
    const tick = (now) => {
      this.at += (this.rate * (now - before)) / 1000;
      before = now;
      if (!this.wrap() && this.at >= this.length) return void (this.at = this.length, this.pause());
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
    if (this.ready) this.video.currentTime = this.zero + Math.min(this.at + A_TOUCH, Math.max(0, this.length - A_TOUCH));
    this.moved(this.at);
  }

  moved(to) {
    this.at = to ?? (this.ready ? Math.max(0, this.video.currentTime - this.zero) : this.at);
    if (!this.ready && this.frames.length) this.showSlide();
    const clock = clockFor(this.length);
    this.time.textContent = this.length ? `${clock(this.at)} / ${clock(this.length)}${this.rate === 1 ? "" : ` · ${this.rate} ×`}` : "";
    this.paintBackdrop();
    this.told.moved(this.at);
  }

  // Beside a film that is narrower than the screen: its picture, which the style sheet blurs.
  paintBackdrop() {
    this.backdrop.hidden = this.kind === "none" || this.stage.clientWidth > this.screen.clientWidth - 2;
    const picture = this.ready ? this.video : this.slide;
    if (this.backdrop.hidden || !(picture.videoWidth || picture.naturalWidth)) return;
    this.backdrop.getContext("2d").drawImage(picture, 0, 0, this.backdrop.width, this.backdrop.height);
  }

  showSlide() {
    const nearest = this.frames.reduce((best, frame) => (Math.abs(frame.time - this.at) < Math.abs(best.time - this.at) ? frame : best));
    const url = nearest.still || nearest.url;
    if (this.slide.getAttribute("src") !== url) this.slide.src = url;
  }

  showPlaying() {
    const playing = this.isPlaying;
    this.play.lastElementChild.textContent = playing ? "Pause" : "Read it to me";
    this.play.classList.toggle("is-playing", playing);
    cancelAnimationFrame(this.following);
    const look = () => {
      if (!this.isPlaying || !this.ready) return;
      this.moved();
      this.wrap();
      this.following = requestAnimationFrame(look);
    };
    if (playing && this.ready) look();
  }

  showSound() {
    this.sound.hidden = !this.ready || !this.hasSound;
    this.sound.setAttribute("aria-pressed", String(!this.video.muted));
  }
}
