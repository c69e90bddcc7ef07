// A stream as somebody watches it: start, every seam in every rung, another rung on the way, and to the end.
//
// An order says what is to be seen: { player, manifest, seconds, frames, seams, rungs }. Seams are the numbers of the
// frames that begin a segment; of sound alone, those its frames would have if it had any: `frames` is 0 then, and
// `rungs` is empty.

import { PLAYERS } from "/page/players.js";
import { FRAMES_A_SECOND, buffered, failOn, play, seek, show } from "/page/screen.js";
import { sourceBuffers, until, video, waitingFor } from "/page/screen.js";

const FRAME_SECONDS = 1 / FRAMES_A_SECOND;
/** How many frames are played before and after a seam. */
const AROUND = 8;
const FAST = 6;
const CODECS = { h264: "avc1", hevc: "hvc1", av1: "av01" };

/** Where the viewer is, for the message when something takes too long. */
window.whereabouts = () => {
  const { currentTime, readyState, error } = video;
  return `waiting for ${waitingFor}; at ${currentTime} s, ready state ${readyState}, loaded ${spans(video)} ${error?.message ?? ""}`;
};

export async function watch(order) {
  const player = PLAYERS[order.player]();
  failOn(() => player.faults().join("; "));
  await player.load(order.manifest);
  const rungs = await playable(order, player);
  await start(player, order);
  for (const rung of rungs) await crossSeams(player, rung, order.seams);
  for (const rung of rungs) await changeOnTheWay(player, rung, rungs[(rungs.indexOf(rung) + 1) % rungs.length]);
  if (rungs.length === 0) await hearOverSeams(player, order.seams);
  await playToTheEnd(player, order);
}

/** The rungs to watch: those in the order whose codec this browser decodes, all of which the player has to offer. */
async function playable(order, player) {
  const supported = await codecs(order);
  const wanted = order.rungs.filter(({ codec }) => supported.has(codec));
  const offered = player.rungs().map((rung, at) => ({ ...rung, at }));
  const rungs = wanted.map(({ codec, height }) => ({
    codec,
    height,
    at: offered.find((rung) => rung.height === height && rung.codecs.startsWith(CODECS[codec]))?.at,
  }));
  expect(
    rungs.every(({ at }) => at !== undefined) && offered.length === Math.max(1, rungs.length),
    `the player offers ${JSON.stringify(offered)}; expected were ${JSON.stringify(wanted)}`,
  );
  return rungs;
}

/** Asks the browser about every codec as the stream names it, and says what it answers. */
async function codecs(order) {
  const text = await (await fetch("/stream/master.m3u8")).text();
  const named = [...text.matchAll(/^#EXT-X-STREAM-INF:.*CODECS="([^"]*)"/gm)].map(([, codecs]) => codecs);
  const supported = new Set();
  for (const codec of new Set(order.rungs.map(({ codec }) => codec))) {
    const variants = named.filter((codecs) => codecs.startsWith(CODECS[codec]));
    expect(variants.length > 0, `no variant of the master playlist names ${codec}`);
    const isSupported = variants.every((codecs) => MediaSource.isTypeSupported(`video/mp4; codecs="${codecs}"`));
    if (isSupported) supported.add(codec);
    say(`${codec} (${variants.join(" ")}): ${isSupported ? "supported" : "not supported by this browser, not played"}`);
  }
  expect(order.frames === 0 || supported.has("h264"), "this browser cannot play H.264");
  return supported;
}

async function start(player, order) {
  await until("the stream's length", () => video.readyState >= 1);
  near(video.duration, order.seconds, "the duration");
  const times = [];
  const seen = await play("the first second", () => times.push(video.currentTime) && video.currentTime >= 1);
  expect(times.every((time, at) => at === 0 || time >= times[at - 1]), `currentTime goes back: ${times}`);
  expect(new Set(times).size > 2, `currentTime does not advance: ${times}`);
  if (order.frames) continues(seen, "the first second");
  sane(player, "the first second");
  say(`starts: ${video.currentTime.toFixed(2)} s in ${seen.length} pictures`);
}

/** From the last to the first, so that each is reached by a seek to where nothing is loaded yet. */
async function crossSeams(player, rung, seams) {
  await pin(player, rung);
  for (const seam of seams.toReversed()) {
    const what = `the seam at frame ${seam} in ${rung.codec} ${rung.height}p`;
    for (const frame of [seam - 1, seam, seam + 1, seam - 2]) {
      const shown = await show(frame);
      expect(shown === frame, `${what}: a seek to frame ${frame} shows frame ${shown}`);
    }
    await playOver(what, seam - AROUND, seam + AROUND);
    await playOver(what, seam, seam + AROUND);
    expect(isOn(player, rung), `${what}: rung ${player.playing()} is on, ${video.videoHeight} high`);
    sane(player, what);
  }
  say(`${rung.codec} ${rung.height}p: over the seams at frames ${seams}`);
}

async function playOver(what, from, to) {
  await show(from);
  await buffered(to * FRAME_SECONDS);
  const seen = await play(`${what}, played over`, () => video.currentTime >= to * FRAME_SECONDS);
  continues(seen, what);
  expect(seen.at(-1).frame > from, `${what}: the picture stands still at ${seen.at(-1).frame}`);
}

async function pin(player, rung) {
  player.pin(rung.at);
  await play(`${rung.codec} ${rung.height}p`, () => isOn(player, rung));
}

function isOn(player, { at, height }) {
  return player.playing() === at && video.videoHeight === height;
}

/**
 * Begins at frame 5, not 0: Chromium applies the edit list of the init segment, hls.js does not read it and may take a
 * rung to begin two frames late; to a viewer before that it gives no other rung, to the end. What it takes is said.
 */
async function changeOnTheWay(player, from, to) {
  if (from === to) return;
  const what = `from ${from.codec} ${from.height}p to ${to.codec} ${to.height}p`;
  await show(5);
  await pin(player, from);
  await show(5);
  await buffered(1);
  video.playbackRate = FAST / 2;
  player.next(to.at);
  const seen = await play(what, () => isOn(player, to) || video.ended);
  video.playbackRate = 1;
  continues(seen, what);
  sane(player, what);
  expect(isOn(player, to), `${what}: it stayed with rung ${player.playing()} to the end`);
  const [taken, loaded] = [player.begins(), video.buffered.start(0)].map((seconds) => seconds.toFixed(3));
  say(`${what}, at ${video.currentTime.toFixed(2)} s; takes the stream to begin at ${taken} s, loaded from ${loaded} s`);
}

async function hearOverSeams(player, seams) {
  for (const seam of seams.toReversed()) {
    for (const from of [seam - AROUND, seam + 1]) {
      const to = (from + 2 * AROUND) * FRAME_SECONDS;
      await seek(from * FRAME_SECONDS);
      await buffered(to);
      await play(`sound over the seam at ${seam * FRAME_SECONDS} s`, () => video.currentTime >= to);
    }
    sane(player, `the seam at ${seam * FRAME_SECONDS} s`);
  }
  say(`over the seams at ${seams.map((seam) => seam * FRAME_SECONDS)} s`);
}

async function playToTheEnd(player, order) {
  player.hurry();
  await seek(0);
  await buffered(order.seconds - FRAME_SECONDS);
  const heard = video.webkitAudioDecodedByteCount;
  video.playbackRate = FAST;
  const seen = await play("the end", () => video.ended);
  video.playbackRate = 1;
  const end = video.currentTime;
  near(end, order.seconds, "the time at the end");
  near(video.duration, order.seconds, "the duration at the end");
  expect(video.webkitAudioDecodedByteCount > heard, "no sound was decoded");
  if (order.frames) {
    continues(seen, "on the way to the end");
    // At this speed the last picture need not have been painted when the end is told.
    const last = await show(order.frames - 1);
    expect(last === order.frames - 1, `the last picture is that of frame ${last}, not ${order.frames - 1}`);
  }
  isWhole(order);
  sane(player, "the end");
  say(`ends at ${end.toFixed(3)} s, ${seen.length} pictures at ${FAST} times the speed`);
}

/** Every track in memory in one piece, from the beginning to the end. */
function isWhole(order) {
  const kinds = sourceBuffers.map(({ type }) => type.split("/")[0]).sort();
  expect(`${kinds}` === (order.frames ? "audio,video" : "audio"), `the player plays ${kinds}`);
  for (const { type, buffer } of sourceBuffers) {
    const { length } = buffer.buffered;
    expect(length === 1, `${type} has holes: ${spans(buffer)}`);
    near(buffer.buffered.start(0), 0, `the beginning of ${type}`);
    near(buffer.buffered.end(0), order.seconds, `the end of ${type}`);
  }
}

/**
 * The pictures came in order, each with its time. A picture is read some moments after its time is told, when the next
 * may have taken its place, but none later than that. How far the clock has come by then is the machine's affair; what
 * a seek shows at rest is compared with it exactly.
 */
function continues(seen, what) {
  expect(seen.length > 1, `${what}: ${seen.length} pictures`);
  const told = seen.map(({ mediaTime }) => Math.round(mediaTime * FRAMES_A_SECOND));
  seen.forEach(({ frame, currentTime }, at) => {
    const history = JSON.stringify(seen.slice(Math.max(0, at - 3), at + 2));
    const latest = told[at + 1] ?? Infinity;
    expect(told[at] <= frame && frame <= latest, `${what}: frame ${frame} at the time of ${told[at]}: ${history}`);
    expect(at === 0 || seen[at - 1].frame <= frame, `${what}: the pictures go back: ${history}`);
    expect(at === 0 || seen[at - 1].currentTime <= currentTime, `${what}: the time goes back: ${history}`);
  });
}

function sane(player, what) {
  expect(player.faults().length === 0, `${what}: ${player.faults().join("; ")}`);
}

function near(found, wanted, what) {
  expect(Math.abs(found - wanted) <= FRAME_SECONDS, `${what} is ${found} s, not ${wanted} s`);
}

function spans({ buffered }) {
  return Array.from({ length: buffered.length }, (_, i) => `${buffered.start(i)}–${buffered.end(i)}`).join(" ");
}

function expect(holds, otherwise) {
  if (!holds) throw new Error(otherwise);
}
