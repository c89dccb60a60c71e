# SPDX-License-Identifier: Apache-2.0
"""The official Python client, one scene a run: client.py SCENE BASE_URL.  Prints what it saw as one line of JSON."""
import asyncio
import json
import sys

import openai

MODEL = "test-model"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello there"}], "max_tokens": 8}
TEXT = {"model": MODEL, "prompt": "hello there", "max_tokens": 8}


def client(base, **kw):
    return openai.OpenAI(base_url=base, api_key=kw.pop("api_key", "sk-test"), **kw)


def serve(base):
    c = client(base)
    chat = c.chat.completions.create(**CHAT)
    stream = list(c.chat.completions.create(stream=True, stream_options={"include_usage": True}, **CHAT))
    text = c.completions.create(**TEXT)
    pieces = list(c.completions.create(stream=True, **TEXT))
    ids = list(c.completions.create(model=MODEL, prompt=list(range(1000, 1100)), max_tokens=4).choices)
    raw = c.chat.completions.with_raw_response.create(**CHAT)
    return {"models": [m.id for m in c.models.list()], "one": c.models.retrieve(MODEL).id, "chat": chat.choices[0].message.content,
            "usage": chat.usage.total_tokens, "request_id": chat._request_id,
            "stream": "".join(e.choices[0].delta.content or "" for e in stream if e.choices),
            "stream_usage": stream[-1].usage.total_tokens if stream[-1].usage else None,
            "finish": [e.choices[0].finish_reason for e in stream if e.choices][-1],
            "text": text.choices[0].text, "pieces": len(pieces), "ids": len(ids), "worker": raw.headers.get("x-warmpath-worker")}


def error(base, fn=None, retries=0, **kw):
    try:
        c = client(base, max_retries=retries, **kw)
        out = (fn or (lambda c: c.chat.completions.create(**CHAT)))(c)
        return {"ok": type(out).__name__}
    except openai.APIStatusError as e:
        return {"error": type(e).__name__, "status": e.status_code, "code": e.code, "param": e.param, "type": e.type, "request_id": e.request_id}
    except openai.APIError as e:
        return {"error": type(e).__name__, "message": str(e), "code": e.code}


def not_found(base):
    return error(base, lambda c: c.chat.completions.create(**{**CHAT, "model": "none"}))


def no_model(base):
    return error(base, lambda c: c.models.retrieve("none"))


def bad(base):
    return error(base, lambda c: c.chat.completions.create(model=MODEL, messages=None))


def wrong_key(base):
    return error(base, api_key="wrong")


def right_key(base):
    return error(base, api_key="sk-right")


def plain(base):
    return error(base)


def patient(base):
    return error(base, retries=4)


def stream_error(base):
    seen = []

    def fn(c):
        for e in c.chat.completions.create(stream=True, **CHAT):
            seen.append(e.choices[0].delta.content)
    return {**error(base, fn), "seen": len(seen)}


def cancel(base):
    c = client(base)
    for how in ("close", "break"):
        s = c.completions.create(stream=True, **{**TEXT, "max_tokens": 4000}, extra_body={"ignore_eos": True})
        next(iter(s))
        if how == "close":
            s.close()
        else:
            s.response.close()
    return {"ok": True}


def many(base):
    async def one(c, i):
        if i % 2:
            return len([e async for e in await c.chat.completions.create(stream=True, **CHAT)]) > 0
        return (await c.chat.completions.create(**CHAT)).choices[0].finish_reason is not None

    async def run():
        async with openai.AsyncOpenAI(base_url=base, api_key="x", max_retries=0) as c:
            return await asyncio.gather(*(one(c, i) for i in range(60)))
    return {"ok": sum(asyncio.run(run()))}


print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))
