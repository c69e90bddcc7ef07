// Signs in at a server's page, adds a video, waits until it is ready, and ends sessions: node home.mjs URL SECRET FILE
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

  const elsewhere = async (name) => {
    const context = await browser.newContext({ userAgent: name });
    const other = await context.newPage();
    await other.goto(url);
    await other.fill("#secret", secret);
    await other.click("#in button");
    await other.waitForSelector("#all:not([hidden])");
    return other;
  };
  const row = (text) => page.locator("#sessions tr", { hasText: text });
  const isSignedOut = async (other) => {
    await other.reload();
    await other.waitForSelector("#in:not([hidden])");
  };
  await page.waitForSelector("#sessions tr");
  if (!(await page.locator("#others").isHidden())) throw new Error("there are no others to end");
  const others = [];
  for (const name of ["<b>second</b> browser", "third browser", "fourth browser"]) others.push(await elsewhere(name));
  await page.reload();
  // What a browser calls itself is text.
  await row("<b>second</b> browser").waitFor();
  if ((await page.locator("#sessions b").count()) > 0) throw new Error("a name became markup");
  if ((await row("this one").count()) !== 1) throw new Error("one session is this one");
  if (process.env.SCREENSHOT) await page.screenshot({ path: process.env.SCREENSHOT, fullPage: true });
  // Without a mouse, as with one.
  const button = row("third browser").getByRole("button", { name: /End the session opened/ });
  await button.focus();
  await page.keyboard.press("Enter");
  await row("third browser").waitFor({ state: "detached" });
  await isSignedOut(others[1]);
  await others[0].reload();
  await others[0].waitForSelector("#all:not([hidden])");
  await page.click("#others");
  await row("fourth browser").waitFor({ state: "detached" });
  if ((await page.locator("#sessions tr").count()) !== 1) throw new Error("this one is left");
  for (const other of others) await isSignedOut(other);
  await page.reload();
  await page.waitForSelector("#all:not([hidden])");

  await page.click("#out");
  await page.waitForSelector("#in:not([hidden])");
  await page.reload();
  await page.waitForSelector("#in:not([hidden])");
  if (faults.length > 0) throw new Error(faults.join("; "));
} finally {
  await browser.close();
}
