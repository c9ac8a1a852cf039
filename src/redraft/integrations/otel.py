"""OpenTelemetry: a run's events as spans in the gen_ai conventions (status: development). Content is off by default.

    run = Run(listeners=[spans()])

One span for the run (`invoke_workflow`), below it one for each call of a model (`chat MODEL`) with its role and tokens; a
draft's score is an event `gen_ai.evaluation.result` on the run's span, and so is what was accepted or rejected and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redraft.errors import ConfigError
from redraft.types import Event

_NANO = 1_000_000_000


def spans(tracer: Any = None, *, content: bool = False) -> Spans:
    """A listener for one run; `tracer` is OpenTelemetry's (None: the global provider's). `content`: prompts and texts, too.

    Raises `ConfigError` without the package opentelemetry-api.
    """
    if tracer is None:
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise ConfigError("spans need the package opentelemetry-api: pip install 'redraft[otel]'") from error
        tracer = trace.get_tracer("redraft")
    return Spans(tracer, content=content)


class Spans:
    """One run's spans. A run that never ends leaves its spans open, as a process that is killed does."""

    def __init__(self, tracer: Any, *, content: bool = False) -> None:
        self._tracer, self._content = tracer, content
        self._root: Any = None
        self._calls: dict[int, Any] = {}

    def __call__(self, event: Event) -> None:
        """One event."""
        if event.kind == "run" and event.scope == "":
            self._root = self._tracer.start_span("invoke_workflow redraft", start_time=_time(event))
            self._root.set_attribute("gen_ai.operation.name", "invoke_workflow")
        elif self._root is None:
            return
        elif event.kind == "intent":
            self._begin(event)
        elif event.kind in ("call", "call_failed", "call_error"):
            self._end(event)
        elif event.kind == "attempt" and event.data["score"] is not None:
            self._scored(event)
        elif event.kind in ("accept", "reject"):
            told = {"redraft.draft": event.data["index"], "redraft.reason": event.data["reason"]}
            self._root.add_event(f"redraft.{event.kind}", told, timestamp=_time(event))
        elif event.kind == "stop" and event.scope == "":
            self._close(event)

    def _begin(self, event: Event) -> None:
        from opentelemetry import trace

        around = trace.set_span_in_context(self._root)
        span = self._tracer.start_span("chat", context=around, kind=trace.SpanKind.CLIENT, start_time=_time(event))
        span.set_attribute("gen_ai.operation.name", "chat")
        span.set_attribute("redraft.role", str(event.data["role"]))
        if self._content:
            span.set_attribute("gen_ai.input.messages", str(event.data.get("content")))
        self._calls[event.seq] = span

    def _end(self, event: Event) -> None:
        span = self._calls.pop(event.data.get("intent") or -1, None)
        if span is None:  # a reply out of the record, or of the cache
            return
        usage: Mapping[str, Any] = event.data["usage"]
        for name in ("input_tokens", "output_tokens"):
            span.set_attribute(f"gen_ai.usage.{name}", usage.get(name, 0))
        if event.kind == "call":
            provider, _, model = str(event.data["model"]).partition("/")
            span.update_name(f"chat {model or provider}")
            span.set_attribute("gen_ai.provider.name", provider)
            span.set_attribute("gen_ai.request.model", model or provider)
            reply = event.data["completion"]
            span.set_attribute("gen_ai.response.model", str(reply["model"]))
            ends = [str(choice.get("finish_reason") or "") for choice in reply["choices"]]
            span.set_attribute("gen_ai.response.finish_reasons", ends)
            if self._content:
                span.set_attribute("gen_ai.output.messages", str(reply["choices"]))
        else:
            self._failed(span, str(event.data.get("class") or event.data.get("error")), event.data.get("error"))
        span.end(end_time=_time(event))

    def _scored(self, event: Event) -> None:
        score = event.data["score"]
        failed = [v["explanation"] for v in score["verdicts"] if not v["passed"]]
        told = {
            "gen_ai.evaluation.name": "redraft",
            "gen_ai.evaluation.score.value": score["value"],
            "gen_ai.evaluation.score.label": "fail" if failed else "pass",
            "redraft.draft": event.data["index"],
        }
        if self._content and failed:
            told["gen_ai.evaluation.explanation"] = "; ".join(failed)
        self._root.add_event("gen_ai.evaluation.result", told, timestamp=_time(event))

    def _close(self, event: Event) -> None:
        self._root.set_attribute("redraft.stop_reason", str(event.data["reason"]))
        if event.data.get("error"):
            self._failed(self._root, str(event.data["error"]).partition(":")[0], event.data["error"])
        for span in self._calls.values():
            span.end(end_time=_time(event))
        self._calls.clear()
        self._root.end(end_time=_time(event))

    def _failed(self, span: Any, kind: str, error: object) -> None:
        from opentelemetry.trace import Status, StatusCode

        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR, str(error) if self._content else kind))


def _time(event: Event) -> int:
    return int(event.time * _NANO)
