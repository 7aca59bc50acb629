// Plays one scenario with the official TypeScript SDK and prints what it saw, as JSON.
// Usage: node drive.mjs SDK_FOLDER SCENARIO < settings.json

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, scenario] = process.argv.slice(2);
const settings = JSON.parse(readFileSync(0, "utf8"));
const require = createRequire(`${folder}/package.json`);
const paths = require.resolve.paths("@openai/codex-sdk");
const { Codex } = await import(pathToFileURL(`${paths[0]}/@openai/codex-sdk/dist/index.js`));

const codex = new Codex({
  codexPathOverride: settings.program,
  env: settings.env,
  config: settings.config,
  apiKey: settings.apiKey,
});
const options = {
  model: settings.model,
  sandboxMode: "danger-full-access",
  workingDirectory: settings.workspace,
  skipGitRepoCheck: true,
  approvalPolicy: "never",
};

async function events(thread, input, turnOptions) {
  const seen = [];
  try {
    for await (const event of (await thread.runStreamed(input, turnOptions)).events) seen.push(event);
  } catch (error) {
    seen.push({ thrown: `${error.name}: ${error.message}` });
  }
  return seen;
}

async function result(thread, input, turnOptions) {
  try {
    return { ...(await thread.run(input, turnOptions)), thread: thread.id };
  } catch (error) {
    return { thrown: `${error.name}: ${error.message}`, thread: thread.id };
  }
}

const start = (more) => codex.startThread({ ...options, ...more });
const schema = { type: "object", properties: { title: { type: "string" } }, required: ["title"], additionalProperties: false };

const scenarios = {
  text: () => result(start(), "hello"),
  stream: () => events(start(), "hello"),
  command: () => events(start(), "run it"),
  patch: () => result(start(), "patch it"),
  schema: () => result(start(), "a title", { outputSchema: schema }),
  image: () =>
    result(start(), [
      { type: "text", text: "look" },
      { type: "text", text: "closely" },
      { type: "local_image", path: settings.image },
    ]),
  resume: async () => {
    const first = start();
    const told = [await result(first, "one"), await result(first, "two")];
    const again = codex.resumeThread(first.id, options);
    return [...told, await events(again, [{ type: "text", text: "three" }, { type: "local_image", path: settings.image }])];
  },
  unknown: () => result(codex.resumeThread("00000000-0000-7000-8000-000000000000", options), "hello"),
  abort: async () => {
    const controller = new AbortController();
    const thread = start();
    const seen = [];
    try {
      for await (const event of (await thread.runStreamed("hello", { signal: controller.signal })).events) {
        seen.push(event);
        if (event.type === settings.abortAt) controller.abort();
      }
    } catch (error) {
      seen.push({ thrown: error.name });
    }
    return seen;
  },
  failure: async () => [await events(start(), "hello"), await result(start(), "hello")],
  retry: () => events(start(), "hello"),
  web: () => events(start({ webSearchMode: "live" }), "search"),
  thought: () => result(start(), "think"),
  options: () =>
    result(
      start({
        sandboxMode: "workspace-write",
        additionalDirectories: [settings.workspace],
        modelReasoningEffort: "high",
        networkAccessEnabled: true,
        webSearchEnabled: false,
        threadSource: "mine",
        cyberAccessProgram: "standard",
      }),
      "hello",
    ),
  key: () => result(start(), "hello"),
};
scenarios.abortCommand = scenarios.abort;

process.stdout.write(JSON.stringify(await scenarios[scenario]()));
