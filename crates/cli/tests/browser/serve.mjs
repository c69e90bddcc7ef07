// A static file server for one test: on 127.0.0.1, on a port of its own, under the given folders only.

import { createReadStream } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import { createServer } from "node:http";
import path from "node:path";

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".m3u8": "application/vnd.apple.mpegurl",
  ".mpd": "application/dash+xml",
  ".mp4": "video/mp4",
  ".m4s": "video/iso.segment",
  ".vtt": "text/vtt; charset=utf-8",
  ".jpg": "image/jpeg",
};

/** Serves `/NAME/…` from `folders[NAME]`. Gives the origin, and what was asked for and not there. */
export async function serve(folders) {
  const roots = {};
  for (const [name, folder] of Object.entries(folders)) roots[name] = await realpath(folder);
  const misses = [];
  const server = createServer((request, response) => {
    answer(roots, request, response).catch((error) => {
      misses.push(`${request.url} (${error.message})`);
      if (!response.headersSent) response.writeHead(404);
      response.end();
    });
  });
  await new Promise((resolve, reject) => server.once("error", reject).listen(0, "127.0.0.1", resolve));
  return { origin: `http://127.0.0.1:${server.address().port}`, misses, close: () => server.close() };
}

async function answer(roots, request, response) {
  const file = await locate(roots, new URL(request.url, "http://127.0.0.1").pathname);
  const { size } = await stat(file);
  const range = wanted(request.headers.range, size);
  if (range === "unsatisfiable") {
    response.writeHead(416, { "content-range": `bytes */${size}` }).end();
    return;
  }
  const { first, last } = range ?? { first: 0, last: size - 1 };
  response.writeHead(range ? 206 : 200, {
    "content-type": TYPES[path.extname(file)] ?? "application/octet-stream",
    "content-length": last - first + 1,
    "accept-ranges": "bytes",
    "cache-control": "no-store",
    ...(range && { "content-range": `bytes ${first}-${last}/${size}` }),
  });
  if (request.method === "HEAD" || size === 0) response.end();
  else createReadStream(file, { start: first, end: last }).on("error", () => response.destroy()).pipe(response);
}

async function locate(roots, pathname) {
  const [, name, ...rest] = decodeURIComponent(pathname).split("/");
  if (!Object.hasOwn(roots, name)) throw new Error("no such folder");
  const root = roots[name];
  // A path of its own, links followed, and still below its root.
  const file = await realpath(path.join(root, ...rest));
  if (file !== root && !file.startsWith(root + path.sep)) throw new Error("outside of its folder");
  if (!(await stat(file)).isFile()) throw new Error("not a file");
  return file;
}

/** The bytes a Range header asks for; nothing without one, or with one we may ignore. */
function wanted(header, size) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? "");
  if (!match || (match[1] === "" && match[2] === "")) return undefined;
  const [, from, to] = match;
  const first = from === "" ? Math.max(0, size - Number(to)) : Number(from);
  const last = from === "" || to === "" ? size - 1 : Math.min(Number(to), size - 1);
  return first <= last ? { first, last } : "unsatisfiable";
}
