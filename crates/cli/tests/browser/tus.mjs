// Uploads a file by tus, and goes on after any trouble: node tus.mjs ENDPOINT FILE ADMIN_SECRET
import { createReadStream, statSync } from "node:fs";
import { Upload } from "tus-js-client";

const [endpoint, file, secret] = process.argv.slice(2);

const upload = new Upload(createReadStream(file), {
  endpoint,
  chunkSize: 64 * 1024,
  uploadSize: statSync(file).size,
  headers: { "X-Admin-Secret": secret },
  metadata: { filename: "long.mp4", title: "By tus" },
  // Thirty seconds, however soon the server is back.
  retryDelays: Array(60).fill(500),
  onShouldRetry: () => true,
  onError(error) {
    console.error(String(error));
    process.exit(1);
  },
  onSuccess: () => process.exit(0),
});
upload.start();
