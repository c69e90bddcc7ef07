// hls.js and shaka-player behind the same verbs:
//
//   load(url)    until the stream is known
//   rungs()      { height, codecs } of each rung the player would play
//   pin(rung)    play this one, at once
//   next(rung)   play this one from the next segment on
//   playing()    the rung on the screen, as the player thinks
//   begins()     where the player takes the stream to begin, in seconds
//   hurry()      load all there is
//   faults()     what went wrong so far, healed or not

import { look, video } from "/page/screen.js";

/** How long a player may stand still before it suspects the stream. A busy machine is not a fault of the stream. */
const PATIENCE_SECONDS = 30;

export const PLAYERS = { "hls.js": withHls, "shaka-player": withShaka };

function withHls() {
  const hls = new Hls({
    maxBufferLength: 6,
    // Otherwise a seek to a moment before a seam is content with what is after it, and a small hole is no fault.
    maxFragLookUpTolerance: 0,
    maxBufferHole: 0,
    detectStallWithCurrentTimeMs: PATIENCE_SECONDS * 1000,
    highBufferWatchdogPeriod: PATIENCE_SECONDS,
  });
  const faults = [];
  hls.on(Hls.Events.ERROR, (_, { type, details, fatal, error, buffer }) => {
    // It gave up loading what another rung made superfluous.
    if (details === Hls.ErrorDetails.INTERNAL_ABORTED && !fatal) return;
    // It does not read the edit list, so it takes a segment to end two frames later than it does: one that is loaded anew at
    // the end of what is loaded has not grown, nor is it whole, in its eyes. It goes on by itself; pictures are still compared.
    if (details === "bufferAppendNoProgress" && !fatal) return;
    // The decoder did not keep up with what is there; should it never move again, a nudge follows, and that counts.
    if (details === Hls.ErrorDetails.BUFFER_STALLED_ERROR && !fatal && buffer > 1) return;
    faults.push(`${fatal ? "fatal " : ""}${type} ${details}: ${error?.message}`);
    look();
  });
  return {
    async load(url) {
      const isKnown = new Promise((resolve) => hls.once(Hls.Events.MANIFEST_PARSED, resolve));
      const failed = new Promise((_, reject) => {
        hls.on(Hls.Events.ERROR, (_, { fatal }) => fatal && reject(new Error(faults.join("; "))));
      });
      hls.loadSource(url);
      hls.attachMedia(video);
      await Promise.race([isKnown, failed]);
    },
    rungs: () => hls.levels.map(({ height, codecs, videoCodec }) => ({ height, codecs: videoCodec ?? codecs })),
    pin: (rung) => (hls.currentLevel = rung),
    next: (rung) => (hls.nextLevel = rung),
    playing: () => hls.currentLevel,
    begins: () => hls.levels[hls.loadLevel].details.fragments[0].start,
    hurry: () => (hls.config.maxBufferLength = 600),
    faults: () => faults,
  };
}

function withShaka() {
  shaka.polyfill.installAll();
  const player = new shaka.Player();
  const faults = [];
  const described = ({ code, data, message }) => `shaka error ${code}: ${message} ${data}`;
  player.addEventListener("error", ({ detail }) => {
    faults.push(described(detail));
    look();
  });
  player.configure({
    abr: { enabled: false },
    streaming: { bufferingGoal: 6, bufferBehind: 600, stallThreshold: PATIENCE_SECONDS },
  });
  const variants = () => player.getVariantTracks();
  return {
    async load(url) {
      await player.attach(video);
      await player.load(url).catch((error) => Promise.reject(new Error(described(error))));
    },
    rungs: () => variants().map(({ height, videoCodec, audioCodec }) => ({ height, codecs: videoCodec ?? audioCodec })),
    pin: (rung) => player.selectVariantTrack(variants()[rung], true, 0),
    next: (rung) => player.selectVariantTrack(variants()[rung], false),
    playing: () => variants().findIndex(({ active }) => active),
    begins: () => player.seekRange().start,
    hurry: () => player.configure({ streaming: { bufferingGoal: 600 } }),
    faults: () => {
      const { gapsJumped, stallsDetected } = player.getStats();
      return [
        ...faults,
        ...(gapsJumped ? [`${gapsJumped} gaps jumped`] : []),
        ...(stallsDetected ? [`${stallsDetected} stalls`] : []),
      ];
    },
  };
}
