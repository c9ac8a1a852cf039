"""The xAI door: gRPC, against a real gRPC server of xAI's own protocol on this machine."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("pydantic_ai")
pytest.importorskip("xai_sdk")

import grpc
from xai_sdk.proto import chat_pb2, chat_pb2_grpc, sample_pb2, usage_pb2

from redraft.errors import AuthError, BadRequestError, LMError, TransientLMError
from redraft.lm import native
from redraft.testing import FunctionLM, lm_contract
from redraft.types import Request

pytestmark = pytest.mark.doors
both_ways = pytest.mark.parametrize("listen", [None, lambda delta: None], ids=["plain", "stream"])


class Service(chat_pb2_grpc.ChatServicer):
    """Says `text`, or fails with `failure`, or waits."""

    text = "Red, green and blue."
    failure = None
    wait = 0.0

    def __init__(self):
        self.requests = []
        self.left = threading.Event()

    def _begin(self, request, context):
        self.requests.append(request)
        context.add_callback(self.left.set)
        if self.failure is not None:
            context.abort(*self.failure)
        until = time.monotonic() + self.wait
        while time.monotonic() < until and context.is_active():
            time.sleep(0.005)
        words = self.text.split(" ")
        return words[: request.max_tokens] if request.HasField("max_tokens") else words

    def _usage(self, request, words):
        return usage_pb2.SamplingUsage(
            prompt_tokens=3,
            completion_tokens=len(words),
            reasoning_tokens=0,
            total_tokens=3 + len(words),
            prompt_text_tokens=3,
        )

    def GetCompletion(self, request, context):  # noqa: N802 - the protocol's name
        words = self._begin(request, context)
        message = chat_pb2.CompletionMessage(content=" ".join(words), role=chat_pb2.ROLE_ASSISTANT)
        output = chat_pb2.CompletionOutput(index=0, message=message, finish_reason=sample_pb2.REASON_STOP)
        return chat_pb2.GetChatCompletionResponse(
            id="x1", model=request.model, outputs=[output], usage=self._usage(request, words)
        )

    def GetCompletionChunk(self, request, context):  # noqa: N802 - the protocol's name
        words = self._begin(request, context)
        for at, word in enumerate(words):
            last = at == len(words) - 1
            delta = chat_pb2.Delta(content=word + ("" if last else " "), role=chat_pb2.ROLE_ASSISTANT)
            reason = sample_pb2.REASON_STOP if last else sample_pb2.REASON_INVALID
            output = chat_pb2.CompletionOutputChunk(index=0, delta=delta, finish_reason=reason)
            yield chat_pb2.GetChatCompletionChunk(
                id="x1", model=request.model, outputs=[output], usage=self._usage(request, words[: at + 1])
            )


@pytest.fixture
def serve():
    server = grpc.server(ThreadPoolExecutor(16))
    service = Service()
    chat_pb2_grpc.add_ChatServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield service, lambda: native.xai("grok-4-1-fast-non-reasoning", base_url=f"http://127.0.0.1:{port}")
    server.stop(None).wait()


def ask(**fields):
    return Request(messages=({"role": "user", "content": "hello you there"},), **{"max_tokens": 16, **fields})


@pytest.mark.parametrize("name", [name for name, _ in lm_contract(lambda: FunctionLM(lambda request: ""))])
async def test_it_keeps_its_promise(serve, name):
    await dict(lm_contract(serve[1]))[name]()


@both_ways
@pytest.mark.parametrize(
    ("code", "said", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, "try later", TransientLMError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests", TransientLMError),
        (grpc.StatusCode.INTERNAL, "oops", TransientLMError),
        (grpc.StatusCode.UNAUTHENTICATED, "no such key", AuthError),
        (grpc.StatusCode.NOT_FOUND, "no such model", BadRequestError),
        (grpc.StatusCode.INVALID_ARGUMENT, "bad", BadRequestError),
    ],
)
async def test_a_failure_is_one_error_and_one_request(serve, code, said, kind, listen):
    service, make = serve
    service.failure = (code, said)
    with pytest.raises(kind) as caught:
        await make().generate(ask(), listen)
    assert isinstance(caught.value, LMError)
    assert len(service.requests) == 1, "the client library tried again by itself"


def test_it_can_be_made_where_no_loop_is(serve):
    asyncio.run(asyncio.sleep(0))  # from here on there is no current loop
    lm = serve[1]()
    assert asyncio.run(lm.generate(ask())).text == "Red, green and blue."


@both_ways
async def test_cancelling_ends_the_call_at_the_server(serve, listen):
    service, make = serve
    service.wait = 30
    call = asyncio.create_task(make().generate(ask(), listen))
    while not service.requests:
        await asyncio.sleep(0.005)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 2)
    assert await asyncio.to_thread(service.left.wait, 2)
