// Makes the container `vodmill` in an emulator of Azure's storage: node container.mjs http://127.0.0.1:PORT

import { createHmac } from "node:crypto";

const account = "devstoreaccount1";
const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

const headers = { "x-ms-date": new Date().toUTCString(), "x-ms-version": "2023-11-03" };
const told = Object.entries(headers).map(([name, value]) => `${name}:${value}\n`).join("");
const resource = `/${account}/${account}/vodmill\nrestype:container`;
const signature = createHmac("sha256", Buffer.from(key, "base64")).update(`PUT${"\n".repeat(12)}${told}${resource}`);
headers.authorization = `SharedKey ${account}:${signature.digest("base64")}`;

const answer = await fetch(`${process.argv[2]}/${account}/vodmill?restype=container`, { method: "PUT", headers });
// One that was restarted has it already.
if (answer.status !== 201 && answer.status !== 409) {
  console.error(`the container could not be made: ${answer.status} ${await answer.text()}`);
  process.exit(1);
}
