// SPDX-License-Identifier: Apache-2.0
// The official Node client, one scene a run: client.mjs SCENE BASE_URL.  Prints what it saw as one line of JSON.
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(path.join(process.env.WP_NODE, "package.json"));
const openai = require("openai");
const OpenAI = openai.OpenAI ?? openai.default ?? openai;
const [scene, baseURL] = process.argv.slice(2);
const MODEL = "test-model";
const chat = { model: MODEL, messages: [{ role: "user", content: "hello there" }], max_tokens: 8 };
const text = { model: MODEL, prompt: "hello there", max_tokens: 8 };
const client = (more = {}) => new OpenAI({ baseURL, apiKey: "sk-test", ...more });

async function all(stream) {
  const out = [];
  for await (const e of stream) out.push(e);
  return out;
}

async function error(fn, more = {}) {
  const c = client({ maxRetries: 0, ...more });
  try {
    await (fn ?? ((c) => c.chat.completions.create(chat)))(c);
    return { ok: true };
  } catch (e) {
    if (!(e instanceof openai.APIError)) throw e;
    return { error: e.constructor.name, status: e.status ?? null, code: e.code ?? null, param: e.param ?? null, request_id: e.requestID ?? null, message: e.message };
  }
}

const scenes = {
  async serve() {
    const c = client();
    const one = await c.chat.completions.create(chat);
    const stream = await all(await c.chat.completions.create({ ...chat, stream: true, stream_options: { include_usage: true } }));
    const words = await c.completions.create(text);
    const pieces = await all(await c.completions.create({ ...text, stream: true }));
    const ids = await c.completions.create({ model: MODEL, prompt: Array.from({ length: 100 }, (_, i) => 1000 + i), max_tokens: 4 });
    const choices = stream.filter((e) => e.choices.length);
    return {
      models: (await all(await c.models.list())).map((m) => m.id), one: (await c.models.retrieve(MODEL)).id,
      chat: one.choices[0].message.content, usage: one.usage.total_tokens, request_id: one._request_id,
      stream: choices.map((e) => e.choices[0].delta.content ?? "").join(""), stream_usage: stream.at(-1).usage?.total_tokens ?? null,
      finish: choices.at(-1).choices[0].finish_reason, text: words.choices[0].text, pieces: pieces.length, ids: ids.choices.length,
    };
  },
  not_found: () => error((c) => c.chat.completions.create({ ...chat, model: "none" })),
  no_model: () => error((c) => c.models.retrieve("none")),
  bad: () => error((c) => c.chat.completions.create({ model: MODEL, messages: null })),
  wrong_key: () => error(null, { apiKey: "wrong" }),
  right_key: () => error(null, { apiKey: "sk-right" }),
  plain: () => error(),
  patient: () => error(null, { maxRetries: 4 }),
  async stream_error() {
    let seen = 0;
    const out = await error(async (c) => {
      for await (const e of await c.chat.completions.create({ ...chat, stream: true })) seen += e.choices.length;
    });
    return { ...out, seen };
  },
  async cancel() {
    const c = client();
    for (const how of ["abort", "break"]) {
      const s = await c.completions.create({ ...text, max_tokens: 4000, ignore_eos: true, stream: true });
      for await (const _ of s) {
        if (how === "abort") s.controller.abort();
        break;
      }
    }
    return { ok: true };
  },
  async many() {
    const c = client({ maxRetries: 0 });
    const one = async (i) => (i % 2 ? (await all(await c.chat.completions.create({ ...chat, stream: true }))).length > 0
      : (await c.chat.completions.create(chat)).choices[0].finish_reason !== null);
    const out = await Promise.all(Array.from({ length: 60 }, (_, i) => one(i)));
    return { ok: out.filter(Boolean).length };
  },
};
console.log(JSON.stringify(await scenes[scene]()));
