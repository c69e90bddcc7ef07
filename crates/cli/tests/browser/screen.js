// The video element: what it shows, and waiting for what it does.
//
// The picture carries its frame's number in sixteen stripes, black for 0 and white for 1, the lowest bit on the left.

export const FRAMES_A_SECOND = 25;
const BITS = 16;
/** How far a picture may be from where a seek was to, and be its. */
const NEAR_FRAMES = 4;
/** After which a look is worth while; `look` is our own. */
const EVENTS = ["timeupdate", "seeked", "resize", "ended", "durationchange", "error", "look"];

export const video = document.getElementById("video");
const canvas = Object.assign(document.createElement("canvas"), { width: BITS, height: 1 });
const paper = canvas.getContext("2d", { willReadFrequently: true });

/** What the player made, in the order it did: `{ type, buffer }`. */
export const sourceBuffers = [];

/** Tells what is wrong with the stream, if anything is; nobody waits any longer then. */
let fault = () => undefined;

export function failOn(told) {
  fault = told;
}

/** What is being waited for, for the message when it never comes. */
export let waitingFor = "nothing";

const addSourceBuffer = MediaSource.prototype.addSourceBuffer;
MediaSource.prototype.addSourceBuffer = function (type) {
  const buffer = addSourceBuffer.call(this, type);
  sourceBuffers.push({ type, buffer });
  buffer.addEventListener("updateend", look);
  return buffer;
};

/** Looks with every event of the video until `is` holds. There is one deadline, and it is not here. */
export function until(what, is) {
  waitingFor = what;
  return new Promise((resolve, reject) => {
    const check = () => {
      const wrong = video.error?.message ?? fault();
      if (wrong) end(reject, new Error(`${what}: ${wrong}`));
      else if (is()) end(resolve);
    };
    const end = (settle, value) => {
      for (const name of EVENTS) video.removeEventListener(name, check);
      settle(value);
    };
    for (const name of EVENTS) video.addEventListener(name, check);
    check();
  });
}

/** Has whoever waits look again. */
export function look() {
  video.dispatchEvent(new Event("look"));
}

/** The number in the picture that is on the screen. */
export function frameNumber() {
  paper.imageSmoothingEnabled = false;
  paper.drawImage(video, 0, 0, BITS, 1);
  const pixels = paper.getImageData(0, 0, BITS, 1).data;
  let number = 0;
  for (let bit = 0; bit < BITS; bit++) if (pixels[4 * bit] > 127) number |= 1 << bit;
  return number;
}

/**
 * Seeks while paused, and waits until that is done and its picture, if there are any, is on the screen. A picture of
 * what was played before may still come after the seek was asked for.
 */
export async function seek(seconds) {
  let isDone = false;
  let isSeen = video.videoHeight === 0;
  video.addEventListener("seeked", () => (isDone = true), { once: true });
  const note = (_, { mediaTime }) => {
    isSeen = Math.abs(mediaTime - seconds) * FRAMES_A_SECOND < NEAR_FRAMES;
    if (!isSeen) video.requestVideoFrameCallback(note);
    look();
  };
  video.requestVideoFrameCallback(note);
  video.currentTime = seconds;
  await until(`a seek to ${seconds.toFixed(3)} s`, () => isDone && isSeen && !video.seeking);
}

/**
 * Seeks into the middle of a frame; the number in the picture that shows then. Chromium calls a seek done when it has
 * something within two frames of it; once the frame itself is loaded, asking again makes it exact.
 */
export async function show(frame) {
  const time = (frame + 0.5) / FRAMES_A_SECOND;
  const isLoaded = holds(time, time);
  await seek(time);
  if (!isLoaded) {
    await buffered(time);
    await seek(time);
  }
  return frameNumber();
}

/** Plays until `is`, then pauses; what was on the screen on the way. */
export async function play(what, is) {
  const seen = [];
  let isWatching = true;
  const note = (_, { mediaTime }) => {
    if (!isWatching) return;
    seen.push({ mediaTime, frame: frameNumber(), currentTime: video.currentTime });
    video.requestVideoFrameCallback(note);
    look();
  };
  video.requestVideoFrameCallback(note);
  waitingFor = `${what}: the start`;
  await video.play();
  await until(what, is);
  isWatching = false;
  video.pause();
  return seen;
}

/** Waits until everything from here to there is loaded. */
export function buffered(to) {
  return until(`the stream up to ${to.toFixed(3)} s`, () => holds(video.currentTime, to));
}

function holds(from, to) {
  const { buffered } = video;
  return Array.from({ length: buffered.length }).some((_, i) => buffered.start(i) <= from && to <= buffered.end(i));
}
