// Opens a page that plays a video, and ends well once two seconds of it were really seen: node early.mjs URL
import { chromium } from "playwright-core";

const [url] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--autoplay-policy=no-user-gesture-required", "--mute-audio"],
});
try {
  const page = await browser.newPage();
  await page.goto(url);
  await page.evaluate(() => document.querySelector("video").play());
  await page.waitForFunction(() => document.querySelector("video").currentTime > 2, null, { timeout: 300_000 });
  const shown = await page.evaluate(() => document.querySelector("video").getVideoPlaybackQuality().totalVideoFrames);
  if (shown < 25) throw new Error(`only ${shown} frames were shown`);
} finally {
  await browser.close();
}
