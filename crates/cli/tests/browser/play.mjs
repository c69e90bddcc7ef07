// Watches streams in Chromium: node play.mjs CHROMIUM STREAM_FOLDER ORDERS, with orders as in viewing.js, as JSON.
// Ends with 0 when everything was seen as ordered; says what it sees as it goes, and what was wrong.

import path from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { serve } from "./serve.mjs";

/** Far more than it takes on a busy machine: only what hangs gets there. */
const DEADLINE_MS = 600_000;

const [executablePath, stream, orders] = process.argv.slice(2);
const here = fileURLToPath(new URL(".", import.meta.url));

const server = await serve({
  page: here,
  stream,
  "hls.js": path.join(here, "node_modules/hls.js/dist"),
  "shaka-player": path.join(here, "node_modules/shaka-player/dist"),
});
const browser = await chromium.launch({
  executablePath,
  // It sees no page but ours, and there is no sandbox for root.
  chromiumSandbox: false,
  args: [
    "--autoplay-policy=no-user-gesture-required",
    "--mute-audio",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
  ],
});
try {
  console.log(`Chromium ${browser.version()}`);
  await Promise.all(JSON.parse(orders).map(watch));
} catch (error) {
  console.log(`FAILED ${error.message}`);
  process.exitCode = 1;
} finally {
  await browser.close();
  server.close();
}

async function watch(order) {
  const begun = performance.now();
  const page = await browser.newPage();
  const say = (line) => console.log(`${order.player}: ${line}`);
  const faults = [];
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") faults.push(message.text());
    else if (message.type() === "warning") say(`(warning) ${message.text()}`);
  });
  await page.exposeFunction("say", say);
  await page.goto(`${server.origin}/page/index.html`);
  let timer;
  const late = new Promise((_, reject) => {
    const tell = async () => reject(new Error(await page.evaluate("whereabouts()").catch(({ message }) => message)));
    timer = setTimeout(tell, DEADLINE_MS);
  });
  try {
    await Promise.race([page.evaluate((order) => globalThis.watch(order), order), late]);
    if (faults.length > 0) throw new Error(faults.join("; "));
    if (server.misses.length > 0) throw new Error(`asked for and not there: ${server.misses.join(", ")}`);
  } catch (error) {
    throw new Error(`${order.player}: ${[error.message, ...faults, ...server.misses].join("\n  ")}`);
  } finally {
    clearTimeout(timer);
    await page.close();
  }
  say(`seen in ${((performance.now() - begun) / 1000).toFixed(1)} s`);
}
