"""Spans of a run by a real OpenTelemetry SDK: the run, its calls by role, scores; no content unless it is asked for."""

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from serve_house import BAD, GOOD, THREE, serving

from redraft import Predict, Refine, Run, checks
from redraft.integrations.otel import spans
from redraft.testing import FaultServer, Reply, ScriptedLM

pytestmark = pytest.mark.serve


@pytest.fixture
def traced():
    provider, kept = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    yield provider.get_tracer("test"), kept
    provider.shutdown()


async def refined(listener):
    write = Refine(Predict("task -> answer", lm=ScriptedLM([BAD, GOOD])), N=3, checks=[checks.sentences(3)])
    return await Run(listeners=[listener]).execute(write, {"task": "secret task"})


async def test_a_run_its_calls_and_its_scores(traced):
    tracer, kept = traced
    await refined(spans(tracer))
    *calls, root = kept.get_finished_spans()
    assert root.name == "invoke_workflow redraft"
    assert root.attributes["redraft.stop_reason"] == "passed"
    assert [c.attributes["gen_ai.operation.name"] for c in calls] == ["chat", "chat"]
    assert {c.parent.span_id for c in calls} == {root.context.span_id}
    assert calls[0].attributes["redraft.role"] == "author"
    assert calls[1].attributes["gen_ai.usage.output_tokens"] == len(GOOD.split())
    scores = [e for e in root.events if e.name == "gen_ai.evaluation.result"]
    assert [e.attributes["gen_ai.evaluation.score.label"] for e in scores] == ["fail", "pass"]
    assert GOOD not in str([s.to_json() for s in kept.get_finished_spans()])
    assert "secret task" not in str([s.to_json() for s in kept.get_finished_spans()])


async def test_content_where_it_is_asked_for(traced):
    tracer, kept = traced
    await refined(spans(tracer, content=True))
    told = str([s.to_json() for s in kept.get_finished_spans()])
    assert GOOD in told
    assert "secret task" in told


def test_the_server_traces_each_refined_answer(traced, monkeypatch):
    from opentelemetry import trace

    tracer, kept = traced
    monkeypatch.setattr(trace, "get_tracer", lambda *_: tracer)
    table = {"three": THREE}
    with FaultServer([Reply.error(400, "no"), BAD, GOOD]) as up, serving(up, table, server={"otel": True}) as served:
        assert served.chat("refine/three").status_code == 200
    names = [span.name for span in kept.get_finished_spans()]
    assert names == ["chat", "chat test", "chat test", "invoke_workflow redraft"]
    failed = kept.get_finished_spans()[0]
    assert failed.attributes["error.type"] == "BadRequestError"
