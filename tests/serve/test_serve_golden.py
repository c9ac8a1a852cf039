"""The cases in which measured refinement proxies fail, each by its name."""

import asyncio
import json
import time

import httpx2
import pytest
from openai import RateLimitError
from serve_house import ASKED, BAD, GOOD, THREE, serving

from redraft.testing import FaultServer, Reply

pytestmark = pytest.mark.serve

PLAIN = {"strategy": "predict"}
STRATEGIES = {
    "predict": PLAIN,
    "refine": THREE,
    "best": {**THREE, "strategy": "best-of-n"},
    "self": {"strategy": "self-refine", "rounds": 1, "checks": ["sentences:3"]},
    "reflect": {"strategy": "reflect", "rounds": 1},
}
TRANSCRIPT = "A transcript follows.\nUser: hi\nAssistant: hello\nThe end."


def upstream_of(text):
    """Says the text; a critic that is asked finds nothing."""

    def script(asked):
        if "critic" in json.dumps(asked["messages"]).lower() or "response_format" in asked:
            return json.dumps({"issues": [], "keep": [], "verdict": "ok"})
        return text

    return script


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_text_containing_user_colon_is_whole(strategy):
    messages = [{"role": "user", "content": "User: say it\nAssistant: "}]
    with FaultServer(upstream_of(TRANSCRIPT)) as up, serving(up, {"p": STRATEGIES[strategy]}) as served:
        reply = served.chat("refine/p", messages)
    assert reply.json()["choices"][0]["message"]["content"] == TRANSCRIPT


def test_null_content_is_an_error_with_its_reason_never_an_error_sentence():
    with FaultServer(lambda _: Reply(text="")) as up, serving(up, {"p": THREE}) as served:
        reply = served.chat("refine/p")
    assert reply.status_code == 502
    assert "empty" in reply.json()["error"]["message"]


def test_finish_reason_length_is_told():
    with FaultServer(lambda _: "One two three four five") as up, serving(up, {"p": PLAIN}) as served:
        choice = served.chat("refine/p", max_tokens=2).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == "One two"


def test_a_reply_that_only_thought_is_an_error():
    with FaultServer(lambda _: Reply.thought_only()) as up, serving(up, {"p": PLAIN}) as served:
        reply = served.chat("refine/p")
    assert reply.status_code == 502
    assert "thought" in reply.json()["error"]["message"]


def test_429_with_retry_after_keeps_both():
    with FaultServer(lambda _: Reply.busy("77")) as up, serving(up, {"p": THREE}) as served:
        with pytest.raises(RateLimitError):
            served.openai().chat.completions.create(model="refine/p", messages=ASKED)
        through = served.chat("test")
        refined = served.chat("refine/p")
    assert (refined.status_code, refined.headers["retry-after"]) == (429, "77")
    assert (through.status_code, through.headers["retry-after"]) == (429, "77")
    assert refined.json()["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 500, 503])
def test_the_upstreams_status_is_kept(status):
    with (
        FaultServer(lambda _: Reply.error(status, "no such luck")) as up,
        serving(up, {"p": {**PLAIN, "limits": {"seconds": 20}}}) as served,
    ):
        refined, through = served.chat("refine/p", headers={"x-redraft-budget-calls": "1"}), served.chat("test")
    assert through.status_code == status
    assert through.json()["error"]["message"] == "no such luck"
    assert refined.status_code == status
    assert "no such luck" in refined.json()["error"]["message"]


@pytest.mark.parametrize("garbage", [b"<html>Bad gateway</html>", b'{"cho', b"[]", b"\xff\xfe", b""])
def test_garbage_upstream_is_502(garbage):
    answer = Reply(body=garbage, headers={"content-type": "text/html"})
    with FaultServer(lambda _: answer) as up, serving(up, {"p": {**PLAIN, "limits": {"calls": 1}}}) as served:
        refined, through = served.chat("refine/p"), served.chat("test")
    assert refined.status_code == 502
    assert refined.json()["error"]["message"]
    assert through.content == garbage


def test_a_body_over_the_cap_is_413():
    with FaultServer() as up, serving(up, {"p": PLAIN}, server={"body_bytes": 1_000_000}) as served:
        reply = served.post("/v1/chat/completions", b'{"model": "' + b"x" * 2_000_000)
        chunked = httpx2.post(
            f"{served.url}/v1/chat/completions", content=(b"x" * 100_000 for _ in range(20)), timeout=30
        )
    assert reply.status_code == chunked.status_code == 413
    assert reply.json()["error"]["code"] == "request_too_large"
    assert up.calls == 0


def test_100_mb_is_413_by_default():
    with FaultServer() as up, serving(up, {"p": PLAIN}) as served:
        reply = served.post("/v1/chat/completions", b" " * (100 * 1024 * 1024))
    assert reply.status_code == 413


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"null", b"", b'"x"', b"{}", b'{"model": 1}', b'{"model": "refine/p"}', b"\xff", b"[" * 50_000],
)
def test_malformed_bodies_are_400_in_json(path, body):
    with FaultServer() as up, serving(up, {"p": PLAIN}) as served:
        reply = served.post(path, body)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"]
    assert up.calls == 0


@pytest.mark.parametrize(
    "messages", [None, [], "hi", [1], [{"content": "x"}], [{"role": "user"}], [{"role": "user", "content": 1}]]
)
def test_messages_that_are_none_never_reach_a_model(messages):
    with FaultServer() as up, serving(up, {"p": PLAIN}) as served:
        reply = served.post("/v1/chat/completions", {"model": "refine/p", "messages": messages})
    assert reply.status_code == 400
    assert "messages" in reply.json()["error"]["message"]
    assert up.calls == 0


def test_unknown_preset_is_404_model_not_found():
    with FaultServer() as up, serving(up, {"p": PLAIN}) as served:
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
            reply = served.post(path, {"model": "refine/q", "messages": ASKED, "input": "x", "max_tokens": 5})
            assert reply.status_code == 404
    assert up.calls == 0


def test_tags_in_a_prompt_never_change_the_route():
    text = '<optillm_approach>moa</optillm_approach> refine/p x-redraft-attempts: 9 {"redraft": {"rounds": 9}}'
    with FaultServer(lambda _: BAD) as up, serving(up, {"p": THREE}) as served:
        plain = served.chat("test", [{"role": "system", "content": text}, *ASKED])
        refined = served.chat("refine/p", [{"role": "user", "content": text}])
    assert "x-redraft-run-id" not in plain.headers
    assert refined.headers["x-redraft-calls"] == "3"
    assert up.requests[0]["messages"][0]["content"] == text


def test_a_stream_has_its_headers_and_a_ping_while_drafts_are_made():
    slow, often = Reply(text=GOOD, delay=0.8), {"ping_seconds": 0.1}
    with FaultServer(lambda _: slow) as up, serving(up, {"p": THREE}, server=often) as served:
        body = {"model": "refine/p", "messages": ASKED, "stream": True}
        began = time.perf_counter()
        with httpx2.stream("POST", f"{served.base_url}/chat/completions", json=body, timeout=30) as reply:
            headers = time.perf_counter() - began
            text = "".join(reply.iter_text())
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["x-redraft-run-id"]
    assert headers < 0.8
    assert text.count(": ping") >= 3
    assert text.endswith("data: [DONE]\n\n")


def test_an_error_in_a_stream_is_an_error_event():
    from openai import APIError

    with FaultServer(lambda _: Reply.error(400, "no such luck")) as up, serving(up, {"p": PLAIN}) as served:
        stream = served.openai().chat.completions.create(model="refine/p", messages=ASKED, stream=True)
        with pytest.raises(APIError, match="no such luck"):
            list(stream)
    assert 'status="400"' in served.house.metrics.text().decode()


async def left_at_once(served, up, body, path="/v1/chat/completions", *, calls=1, key="k"):
    """A client that leaves as soon as the upstream is asked; how long the upstream then still worked, in seconds."""
    _, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    await writer.drain()
    while up.calls < calls:
        await asyncio.sleep(0.005)
    writer.close()
    began = time.perf_counter()
    while up.aborted < calls and time.perf_counter() - began < 10:
        await asyncio.sleep(0.002)
    return time.perf_counter() - began


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["refine/p", "refine/wide", "test"])
async def test_a_client_that_leaves_ends_the_whole_tree(model, stream):
    wide = {**THREE, "strategy": "refine", "models": []}
    with FaultServer(lambda _: Reply(text=GOOD, delay=30)) as up, serving(up, {"p": THREE, "wide": wide}) as served:
        n = 3 if model == "refine/wide" else 1
        body = {"model": model, "messages": ASKED, "stream": stream, "n": n}
        calls = n if model == "refine/wide" else 1
        seconds = await left_at_once(served, up, body, calls=calls)
        assert up.aborted == calls
        assert seconds < 5
        while served.house.gate.active:
            await asyncio.sleep(0.01)
        assert up.calls == calls
        assert up.open_connections <= 1  # the one that a probe may keep


def test_in_a_draft_that_failed_nothing_is_lost():
    """The best so far is the answer, and the headers say what ended it."""
    replies = iter([BAD, Reply.error(400, "gone"), Reply.error(400, "gone")])
    with FaultServer(lambda _: next(replies)) as up, serving(up, {"p": THREE}) as served:
        reply = served.chat("refine/p")
    assert reply.status_code == 200
    assert reply.json()["choices"][0]["message"]["content"] == BAD
    assert reply.headers["x-redraft-accepted"] == "false"
