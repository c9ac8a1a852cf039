"""An API with logprobs and prefill as the backend: the stream is cut, and the text goes on from its kept bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from tables import DOGS, WORDS

from redraft import Predict, checks
from redraft.errors import UnsupportedError
from redraft.lm.openai import OpenAILM
from redraft.lm.servers import llama_server, vllm
from redraft.proactive import ProactiveDecoder, RandomSignal
from redraft.proactive.backend import as_backend
from redraft.proactive.scripted import END, TableLM
from redraft.types import Capabilities, Request

pytestmark = pytest.mark.server

ABLE = Capabilities(logprobs=True, prefill=True, seed=True, stream=True)
COUNTING = {"One, two, three,": {" four": 0.9, " red": 0.1}, " four": {END: 1.0}}


def table(before):
    return (COUNTING.get(before[-1]) if before else None) or DOGS(before)


class TokenServer:
    """Chat completions from a table, a token a chunk; it waits for the client after each, and notes what it wrote."""

    def __init__(self, *, continues=True, alternatives=True, strip=False):
        self.lm = TableLM(table, [*WORDS, "One, two, three,", " four"], ids=False)
        self.continues, self.alternatives, self.strip = continues, alternatives, strip
        self.bodies, self.broken, self._writers = [], 0, []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        self._writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = int(head.split("content-length:")[1].split("\r\n")[0])
                await self._answer(json.loads(await reader.readexactly(size)), reader, writer)
        writer.close()

    async def _answer(self, body, reader, writer):
        self.bodies.append(body)
        last = body["messages"][-1]
        prefill = last["content"] if last["role"] == "assistant" and self.continues else None
        request = Request(
            messages=(), prefill=prefill, max_tokens=body["max_tokens"], temperature=body.get("temperature")
        )
        [choice] = self.lm.reply(request, None, None).choices
        entries = [
            {k: v for k, v in entry.items() if self.alternatives or k != "top_logprobs"} for entry in choice.logprobs
        ]
        usage = {"prompt_tokens": 5, "completion_tokens": len(entries), "total_tokens": 5 + len(entries)}
        if not body.get("stream"):
            message = {"role": "assistant", "content": choice.text}
            whole = {"message": message, "finish_reason": choice.finish_reason, "logprobs": {"content": entries}}
            said = json.dumps({"choices": [whole], "usage": usage}).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(said), said)
            )
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        left = asyncio.ensure_future(reader.read())
        for entry in entries:
            text = entry["token"].strip() if self.strip else entry["token"]
            piece = {"delta": {"content": text}, "logprobs": {"content": [entry]}, "finish_reason": None}
            writer.write(b"data: %s\n\n" % json.dumps({"choices": [piece]}).encode())
            await writer.drain()
            with contextlib.suppress(TimeoutError):  # a model takes its time: a client that leaves is noticed
                await asyncio.wait_for(asyncio.shield(left), 0.05)
            if left.done():
                self.broken += 1
                raise ConnectionError
        end = {"choices": [{"delta": {}, "finish_reason": choice.finish_reason}], "usage": usage}
        writer.write(b"data: %s\n\ndata: [DONE]\n\n" % json.dumps(end).encode())
        await writer.drain()
        left.cancel()
        raise ConnectionError


def decoder(lm, **options):
    author = Predict("topic -> line", lm=lm, temperature=0.0, max_tokens=30)
    return ProactiveDecoder(author, checks=[checks.forbids("dull"), checks.sentences(2)], **options)


async def test_the_stream_is_cut_and_the_text_goes_on_from_its_kept_bytes():
    async with TokenServer() as server:
        lm = OpenAILM("table", base_url=server.url, capabilities=ABLE)
        result = await decoder(lm).acall(topic="dogs")
    assert result.line == "A red dog. It runs."
    assert server.broken == 1
    probe, first, *later = server.bodies
    assert probe["messages"][-1]["content"] == "One, two, three,"
    assert first["messages"][-1]["role"] == "user"
    assert [body["messages"][-1] for body in later] == [
        {"role": "assistant", "content": "A red"},
        {"role": "assistant", "content": "A red dog. It"},
    ]
    assert all(body["top_logprobs"] == 8 and body["logprobs"] for body in later)
    assert result.usage.calls == 4
    # Three tokens of the first text were seen; the rest of its cap may have been written. Its prompt is known in bounds only.
    assert result.usage.output_tokens == 1 + 1 + 3 + 3 + 3
    assert result.usage.uncertain_tokens >= 27


async def test_branches_are_calls_of_their_own_at_their_temperatures():
    async with TokenServer() as server:
        lm = OpenAILM("table", base_url=server.url, capabilities=ABLE)
        from redraft.proactive import DynamicBacktracker

        back = DynamicBacktracker(reach=(1, 9), keep=0.0, most=1)
        await decoder(lm, signal=RandomSignal(1.0), back=back).acall(topic="dogs")
    warm = [body["temperature"] for body in server.bodies if body["temperature"]]
    assert set(warm) <= {0.7, 0.8, 0.9}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"continues": False}, "does not continue a text"),
        ({"alternatives": False}, "does not report the likely tokens"),
    ],
)
async def test_a_server_that_cannot_is_refused_after_one_small_call(options, message):
    async with TokenServer(**options) as server:
        lm = OpenAILM("table", base_url=server.url, capabilities=ABLE)
        with pytest.raises(UnsupportedError, match=message):
            await decoder(lm).acall(topic="dogs")
    assert len(server.bodies) == 1
    assert server.bodies[0]["max_tokens"] == 4


async def test_tokens_that_do_not_make_up_the_text_are_said():
    async with TokenServer(strip=True) as server:
        lm = OpenAILM("table", base_url=server.url, capabilities=ABLE)
        result = await decoder(lm).acall(topic="dogs")
    assert result.line == "A red dog. It runs.", "the tokens are what counts"
    assert "token_mismatch" in {event.kind for event in result.events}


async def test_servers_that_are_known_to_continue_are_asked_in_their_words():
    async with TokenServer() as server:
        result = await decoder(vllm("table", base_url=server.url)).acall(topic="dogs")
        assert result.passed
        await decoder(llama_server("table", base_url=server.url)).acall(topic="dogs")
    flags = [body.get("continue_final_message") for body in server.bodies]
    assert flags == [True, None, True, True, None, None, None, None]


def test_only_those_are_taken_for_able():
    for lm in (vllm("x"), llama_server("x")):
        assert not lm.capabilities.prefill
        assert as_backend(lm).capabilities.prefill
        assert not lm.capabilities.prefill, "the model that was given stays as it was"
    other = OpenAILM("x", base_url="http://127.0.0.1:1/v1")
    assert as_backend(other) is other
