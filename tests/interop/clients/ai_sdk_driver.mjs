// The codex provider of the AI SDK, told what to do by lines of JSON.
// Usage: node ai_sdk_driver.mjs FOLDER PROGRAM WORKSPACE
//
// Each order is answered by one line with `result`; a part of a stream by one with `event`, and a question to the user
// by one with `asked`. `abort`, `interrupt` and `inject` have no answer: they are about the stream that runs.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [folder, program, workspace] = process.argv.slice(2);
const [modules] = createRequire(`${folder}/package.json`).resolve.paths("ai-sdk-provider-codex-cli");
const library = await import(pathToFileURL(`${modules}/ai-sdk-provider-codex-cli/dist/index.js`));

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const settings = { codexPath: program, cwd: workspace, logger: false };
const provider = library.createCodexAppServer({ defaultSettings: settings });
const exec = library.createCodexExec({ defaultSettings: { ...settings, skipGitRepoCheck: true } });
let controller = null;
let session = null;

function call({ prompt, schema, decision, threadId, threadMode }) {
  controller = new AbortController();
  const decide = async (request) => {
    say({ asked: request.params.command ?? request.method });
    return { decision };
  };
  return {
    prompt: [{ role: "user", content: [{ type: "text", text: prompt }] }],
    abortSignal: controller.signal,
    ...(schema ? { responseFormat: { type: "json", schema } } : {}),
    providerOptions: {
      "codex-app-server": {
        ...(threadId ? { threadId } : {}),
        ...(threadMode ? { threadMode } : {}),
        serverRequests: { onCommandExecutionApproval: decide, onFileChangeApproval: decide },
        onSessionCreated: (created) => {
          session = created;
        },
      },
    },
  };
}

async function stream(order) {
  const seen = { text: "", calls: [], results: [], finish: null, threadId: null, thrown: null };
  try {
    const { stream: parts } = await provider(order.model).doStream(call(order));
    for await (const part of parts) {
      say({ event: part });
      if (part.type === "text-delta") seen.text += part.delta;
      if (part.type === "tool-call") seen.calls.push(part);
      if (part.type === "tool-result") seen.results.push(part);
      if (part.type === "error") seen.thrown = String(part.error?.message ?? part.error);
      if (part.type === "finish") {
        seen.finish = part.finishReason;
        seen.threadId = part.providerMetadata?.["codex-app-server"]?.threadId;
      }
    }
  } catch (error) {
    seen.thrown = `${error.name}: ${error.message}`;
  }
  return seen;
}

const textOf = (generated) => generated.content.filter((part) => part.type === "text").map((part) => part.text).join("");

const orders = {
  models: async () => (await provider.listModels()).models.map((model) => model.id),
  generate: async (order) => textOf(await provider(order.model).doGenerate(call(order))),
  exec: async (order) => textOf(await exec(order.model).doGenerate(call(order))),
  stream,
};
const asides = {
  abort: () => controller.abort(),
  interrupt: () => session.interrupt(),
  inject: async (order) => {
    await session.injectMessage(order.prompt);
    say({ event: { type: "injected" } });
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  const failed = (error) => say({ result: { thrown: `${error.name}: ${error.message}` } });
  if (order.do in asides) Promise.resolve(asides[order.do](order)).catch(failed);
  else orders[order.do](order).then((result) => say({ result }), failed);
}
await provider.close();
