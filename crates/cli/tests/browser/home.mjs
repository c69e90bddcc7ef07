// Signs in at a server's page, adds a video and waits until it is ready: node home.mjs URL SECRET FILE
import { chromium } from "playwright-core";

const [url, secret, file] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
try {
  const page = await browser.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(error.message));
  const signIn = async (text) => {
    await page.fill("#secret", text);
    await page.click("#in button");
  };
  await page.goto(url);
  await page.waitForSelector("#in:not([hidden])");
  await signIn("a wrong secret");
  await page.waitForFunction(() => document.getElementById("wrong").textContent.includes("wrong"));
  await signIn(secret);
  await page.waitForSelector("#all:not([hidden])");
  await page.setInputFiles("#file", file);
  await page.click("#add button");
  await page.waitForSelector("#videos .ready", { timeout: 300_000 });
  await page.reload();
  await page.waitForSelector("#videos .ready");
  if ((await page.locator("#workers tr").count()) < 1) throw new Error("no worker is shown");
  await page.click("#out");
  await page.waitForSelector("#in:not([hidden])");
  await page.reload();
  await page.waitForSelector("#in:not([hidden])");
  if (faults.length > 0) throw new Error(faults.join("; "));
} finally {
  await browser.close();
}
