"""Real models pass through byte for byte: bodies, headers, streams, errors; and no key of ours goes with them."""

import asyncio
import gzip
import json

import httpx2
import pytest
from serve_house import ASKED, THREE, running, serving

from redraft.server.house import Plans
from redraft.server.keys import Keys
from redraft.server.upstreams import Upstream
from redraft.testing import FaultServer, Reply
from redraft.testing.wire_anthropic import ANTHROPIC
from redraft.testing.wire_responses import RESPONSES

pytestmark = pytest.mark.serve


def raw_reply(url, body, headers=None, path="/v1/chat/completions"):
    with httpx2.stream("POST", url + path, content=body, headers=headers, timeout=30) as reply:
        return reply.status_code, dict(reply.headers), b"".join(reply.iter_raw())


def test_the_body_goes_up_and_comes_down_byte_for_byte():
    body = b'{"model":"test",  "messages":[{"role":"user","content":"\\u00e9 \xc3\xa9 1e400"}], "x": 1.0e2, "x": 2}'
    answer = b'{"id": 1,   "choices": []}\n\n'
    seen = []

    def beside(target, raw):
        seen.append((target, raw))
        return Reply(body=answer, headers={"x-request-id": "req-1", "content-type": "application/json"})

    with FaultServer(beside=beside) as up:
        plans = Plans(upstreams=(Upstream(name="up", base_url=up.base_url.replace("/v1", "/other/v1")),))
        up._wire = RESPONSES  # so that `beside` sees chat completions as they come
        with running(plans) as served:
            status, headers, got = raw_reply(served.url, body, {"content-type": "application/json"})
            query = raw_reply(served.url, body, path="/v1/chat/completions?beta=true")
    assert (status, got) == (200, answer)
    assert headers["x-request-id"] == "req-1"
    assert seen[0] == ("POST /other/v1/chat/completions", body)
    assert seen[1][0] == "POST /other/v1/chat/completions?beta=true"
    assert query[0] == 200


def test_a_coded_body_stays_coded():
    coded = gzip.compress(b'{"choices": []}')
    reply = Reply(body=coded, headers={"content-encoding": "gzip"})
    with FaultServer(lambda _: reply) as up, serving(up) as served:
        body = json.dumps({"model": "test", "messages": ASKED}).encode()
        status, headers, got = raw_reply(served.url, body, {"accept-encoding": "gzip"})
    assert (status, got, headers["content-encoding"]) == (200, coded, "gzip")


def test_a_stream_passes_as_it_comes():
    with FaultServer(lambda _: Reply(text=["a ", "b ", "c"], pause=0.3)) as up, serving(up) as served:
        body = {"model": "test", "messages": ASKED, "stream": True}
        with httpx2.stream("POST", f"{served.base_url}/chat/completions", json=body, timeout=30) as reply:
            pieces = reply.iter_raw()
            first = next(pieces)
            rest = b"".join(pieces)
    assert b"[DONE]" not in first
    assert rest.endswith(b"data: [DONE]\n\n")


def test_neither_the_clients_key_nor_its_cookies_nor_our_headers_go_up(monkeypatch):
    monkeypatch.setenv("UP_KEY", "upstream-secret")
    monkeypatch.setenv("REDRAFT_SERVER_KEYS", "proxy-secret")
    with FaultServer(lambda _: "One. Two. Three.") as up:
        tables = {"up": {"base_url": up.base_url, "api_key_env": "UP_KEY"}}
        with serving(up, {"p": THREE}, upstreams=tables) as served:
            headers = {
                "authorization": "Bearer proxy-secret",
                "cookie": "proxy-secret",
                "x-api-key": "proxy-secret",
                "x-redraft-include": "scores",
                "connection": "x-hop",
                "x-hop": "proxy-secret",
                "te": "trailers",
                "openai-organization": "org",
            }
            assert served.chat("test", headers=headers).status_code == 200
            assert served.chat("refine/p", headers=headers).status_code == 200
            assert served.get("/v1/models", headers=headers).status_code == 200
    assert "proxy-secret" not in json.dumps([up.headers, up.requests])
    assert up.headers[0]["authorization"] == "Bearer upstream-secret"
    assert up.headers[0]["openai-organization"] == "org"
    assert not {"cookie", "te", "x-hop", "x-redraft-include"} & set(up.headers[0])


def test_an_upstream_that_is_not_there_is_502():
    plans = Plans(upstreams=(Upstream(name="gone", base_url="http://127.0.0.1:9/v1"),))
    with running(plans) as served:
        reply = served.chat("test")
        ready = served.get("/health/ready")
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_error")
    assert ready.status_code == 503
    assert "gone" in ready.json()["faults"]


def test_a_response_that_breaks_off_there_breaks_off_here():
    with FaultServer(lambda _: Reply(text="a b c d", cut=2)) as up, serving(up) as served:
        body = {"model": "test", "messages": ASKED, "stream": True}
        raw = json.dumps(body).encode()
        with pytest.raises(httpx2.HTTPError):
            raw_reply(served.url, raw)


def test_a_model_goes_to_the_first_upstream_that_takes_its_name():
    with FaultServer(lambda _: "a") as a, FaultServer(lambda _: "b") as b:
        tables = {
            "a": {"base_url": a.base_url, "models": ["gpt-*"]},
            "b": {"base_url": b.base_url, "models": ["llama"]},
        }
        with serving(None, upstreams=tables) as served:
            assert served.chat("llama").json()["choices"][0]["message"]["content"] == "b"
            assert served.chat("gpt-9").json()["choices"][0]["message"]["content"] == "a"
            assert served.chat("other").status_code == 404


def test_anthropics_messages_and_openais_responses_pass_too():
    with FaultServer(lambda _: "hello", wire=ANTHROPIC) as claude, FaultServer(lambda _: "hi", wire=RESPONSES) as gpt:
        tables = {
            "claude": {"base_url": claude.base_url, "kind": "anthropic"},
            "gpt": {"base_url": gpt.base_url},
        }
        with serving(None, upstreams=tables) as served:
            said = served.anthropic().messages.create(model="claude-x", max_tokens=9, messages=ASKED)
            told = served.openai().responses.create(model="gpt-x", input="hi")
    assert said.content[0].text == "hello"
    assert told.output_text == "hi"


def test_options_for_a_real_model_are_refused_not_dropped():
    with FaultServer() as up, serving(up) as served:
        reply = served.chat("test", redraft={"rounds": 1})
    assert reply.status_code == 400
    assert up.calls == 0


async def test_many_at_once_share_one_pool():
    with FaultServer(lambda _: Reply(delay=0.05)) as up, serving(up) as served:
        async with httpx2.AsyncClient(timeout=30) as client:
            body = {"model": "test", "messages": ASKED}
            asked = [client.post(f"{served.base_url}/chat/completions", json=body) for _ in range(40)]
            replies = await asyncio.gather(*asked)
    assert {r.status_code for r in replies} == {200}
    assert up.most_connections <= 41


def test_without_keys_everybody_here_may_ask_and_with_keys_only_those(monkeypatch):
    monkeypatch.setenv("REDRAFT_SERVER_KEYS", "one, two")
    assert bool(Keys.read())
    with FaultServer() as up, serving(up, {"p": THREE}) as served:
        assert served.get("/health").status_code == 200
        assert served.get("/health/ready").status_code == 200
        for path in ("/v1/models", "/metrics", "/openapi.json", "/redraft/shadow"):
            assert served.get(path).status_code == 401
            assert served.get(path, {"authorization": "Bearer three"}).status_code == 401
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"):
            refused = served.post(path, {"model": "test"})
            assert refused.status_code == 401
            assert refused.json()["error"]["message"]
        for headers in ({"authorization": "Bearer two"}, {"x-api-key": "one"}):
            assert served.get("/v1/models", headers).status_code == 200
    assert up.calls == 0


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"host": "evil.example"}, {"origin": "null"}])
def test_without_keys_no_page_in_a_browser_reaches_it(headers, monkeypatch):
    with FaultServer() as up, serving(up, {"p": THREE}) as served:
        assert served.chat("test", headers=headers).status_code == 403
        assert served.chat("test", headers={"origin": served.url}).status_code == 200
    monkeypatch.setenv("REDRAFT_SERVER_KEYS", "one")
    with FaultServer() as up, serving(up, {"p": THREE}) as served:
        assert served.chat("test", headers={**headers, "x-api-key": "one"}).status_code == 200
