// The official TypeScript SDK against `aos mcp --http`. argv: where the SDK is, the address, the token, the folder.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import assert from "node:assert/strict";

const [sdk, url, token, root] = process.argv.slice(2);
const require = createRequire(`${sdk}/package.json`);
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");

const transport = (headers) => new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
const person = { name: "outside", version: "1" };

await assert.rejects(new Client(person).connect(transport({})), "nobody comes in without the token");
await assert.rejects(new Client(person).connect(transport({ Authorization: "Bearer wrong" })));

const client = new Client(person);
await client.connect(transport({ Authorization: `Bearer ${token}` }));
const { tools } = await client.listTools();
const hints = Object.fromEntries(tools.map((tool) => [tool.name, tool.annotations]));
assert.equal(hints.read_file.readOnlyHint, true);
assert.equal(hints.write_file.readOnlyHint, false);

const call = async (name, args) => await client.callTool({ name, arguments: args });
const written = await call("write_file", { path: "from/ts.txt", content: "one\n" });
assert.equal(written.isError, false);
assert.equal(readFileSync(`${root}/from/ts.txt`, "utf8"), "one\n");
const calls = await Promise.all([1, 2, 3].map((n) => call("shell", { command: `echo ${n}` })));
calls.forEach((result, n) => assert.match(result.content[0].text, new RegExp(`^${n + 1}\n`)));
const refused = await call("write_file", { path: "../escaped.txt", content: "no" });
assert.equal(refused.isError, true);
assert.equal(refused.structuredContent?.error_code, "path_outside_roots");
const journal = await client.readResource({ uri: "aos://journal" });
assert.match(journal.contents[0].text, /fs.write_file/);
await client.close();
console.log("all well");
