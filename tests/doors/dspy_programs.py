"""DSPy programs and models for tests. A model is either ours (`ours`: a redraft LM behind `dspy_lm`) or DSPy's own
(`theirs`: a `dspy.LM` with an engine that redraft knows nothing of, cached as DSPy caches).
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

dspy = pytest.importorskip("dspy")

from dspy import lm15  # noqa: E402

from redraft.integrations.dspy import BestOfN, Refine, dspy_lm  # noqa: E402
from redraft.testing import FunctionLM, ScriptedLM  # noqa: E402
from redraft.testing.words import EVERYTHING  # noqa: E402

QUIET = [
    "ignore:Implementing custom LMs through BaseLM:DeprecationWarning",
    "ignore:.*rollout_id has no effect.*",
    "ignore::ResourceWarning",
]
DOOR = [pytest.mark.doors, *(pytest.mark.filterwarnings(warning) for warning in QUIET)]
"""The marks of every file of DSPy's tests."""
BOTH = pytest.mark.parametrize("method", [Refine, BestOfN])


def said(**fields):
    """A reply in the form that ChatAdapter reads."""
    marked = "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items())
    return f"{marked}\n\n[[ ## completed ## ]]"


def answers(*texts):
    return [said(answer=text) for text in texts]


def asked(lm, at=-1):
    """All that a call of the model sent, as one text."""
    return "\n".join(str(m["content"]) for m in lm.requests[at].messages)


class Model:
    """What a scripted model was asked, whichever side it is on."""

    def __init__(self, replies, name="test/model", **options):
        fn = replies if callable(replies) else None
        self.inner = FunctionLM(fn, name=name) if fn else ScriptedLM(replies, name=name)
        self.inner.capabilities = replace(EVERYTHING, json_schema=options.pop("schema", True))
        self.requests = self.inner.requests
        self.lm = dspy_lm(self.inner, **options)


class Engine:
    """An engine of DSPy's own kind. A reply is a text, an lm15 error to raise, or a function of the request."""

    supports_response_schema = True
    supported_params = ("temperature", "max_tokens", "response_format")

    def __init__(self, replies):
        self.replies = replies if callable(replies) else iter(replies)
        self.requests = []
        self.lock = threading.Lock()

    def complete(self, request):
        with self.lock:
            self.requests.append(Seen(request))
            reply = self.replies(self.requests[-1]) if callable(self.replies) else next(self.replies)
        if isinstance(reply, Exception):
            raise reply
        used = lm15.Usage(input_tokens=10, output_tokens=len(reply.split()))
        message = lm15.Message.assistant([lm15.TextPart(reply)])
        return lm15.Response(id=None, model=request.model, message=message, finish_reason="stop", usage=used)

    def stream(self, request):
        response = self.complete(request)
        yield lm15.StreamStartEvent(id=None, model=request.model)
        for piece in response.message.parts[0].text.split(" "):
            yield lm15.StreamDeltaEvent(delta=lm15.TextDelta(text=piece + " ", part_index=0))
        yield lm15.StreamEndEvent(finish_reason="stop", usage=response.usage)


class AsyncEngine:
    def __init__(self, engine):
        self.engine = engine

    async def complete(self, request):
        return self.engine.complete(request)

    async def stream(self, request):
        for event in self.engine.stream(request):
            yield event


class Seen:
    """A request of DSPy's as the tests read it."""

    def __init__(self, request):
        self.temperature = request.config.temperature
        system = [{"role": "system", "content": request.system}] if request.system else []
        self.messages = [*system, *({"role": m.role, "content": m.text} for m in request.messages)]


class Theirs:
    """A dspy.LM that is none of ours; `awaits=False`: one that cannot be awaited."""

    def __init__(self, replies, name="theirs/model", *, awaits=True, **options):
        self.engine = Engine(replies)
        self.requests = self.engine.requests
        both = {"engine": self.engine, "async_engine": AsyncEngine(self.engine) if awaits else None}
        self.lm = dspy.LM(name, num_retries=options.pop("num_retries", 0), **both, **options)


KINDS = {"ours": Model, "theirs": Theirs}
EITHER = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def short(args, pred):
    """Few words are good."""
    return 1.0 / max(1, len(pred.answer.split()))


class Twice(dspy.Module):
    """Two predictors of one signature object."""

    def __init__(self, lm=None, other=None):
        super().__init__()
        signature = dspy.Signature("question -> answer")
        self.first, self.second = dspy.Predict(signature), dspy.Predict(signature)
        self.first.lm, self.second.lm = lm, other

    def forward(self, question):
        return self.second(question=self.first(question=question).answer)


@contextmanager
def dspy_as_it_was():
    """Every test begins with DSPy's defaults and an empty cache in memory (conftest.py)."""
    held = sys.modules["dspy.dsp.utils.settings"]  # the package has an attribute of that name, which is another thing
    before = dict(held.main_thread_config)
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    yield
    held.main_thread_config.clear()
    held.main_thread_config.update({**before, "trace": []})
