"""`/metrics`, for Prometheus: what is asked, how it is refined, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import prometheus_client as prometheus

from redraft.result import Result, cut_off
from redraft.run import Run
from redraft.server.asked import PREFIX, Answer
from redraft.server.gate import Gate
from redraft.types import Usage

CONTENT_TYPE = prometheus.CONTENT_TYPE_PLAIN_0_0_4

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_ROUNDS = (0, 1, 2, 3, 4, 5, 8, 12)
_GAINS = (-1, -0.5, -0.1, 0, 0.01, 0.1, 0.25, 0.5, 0.75, 1)


class Metrics:
    """One server's own registry. `model` is a preset's name, or the upstream's: clients make up no series."""

    def __init__(self, gate: Gate) -> None:
        self._registry = prometheus.CollectorRegistry()
        self.requests = self._counter("requests", "Requests answered", "route", "model", "status")
        self.seconds = self._histogram(
            "request_seconds", "From the request to the reply's end", _SECONDS, "route", "model"
        )
        self.rounds = self._histogram("rounds", "Drafts after the first one", _ROUNDS, "model")
        self.gain = self._histogram("score_gain", "Score of the kept draft above the first one's", _GAINS, "model")
        self.drafts = self._counter(
            "drafts", "Drafts accepted, rejected, and cut off before they were judged", "model", "decision"
        )
        self.stops = self._counter("stops", "Why runs ended", "model", "reason")
        self.calls = self._counter("upstream_calls", "Calls of models", "model", "role")
        self.tokens = self._counter("tokens", "Tokens of all calls", "model", "role", "kind")
        self.cost = self._counter("cost_dollars", "Dollars of all calls whose price is known", "model", "role")
        self.failures = self._counter("upstream_failures", "Calls of models that failed", "model", "status")
        self.overhead = self._histogram(
            "overhead_seconds", "Of a refined answer, what no model took", _SECONDS, "model"
        )
        self.shadowed = self._counter("shadow_runs", "Answers that were refined aside", "model", "outcome")
        self._gauge("requests_active", "Requests under way").set_function(lambda: gate.active)
        self._gauge("requests_waiting", "Requests that wait for a place").set_function(lambda: gate.waiting)

    def _counter(self, name: str, told: str, *labels: str) -> Any:
        return prometheus.Counter(f"redraft_{name}", told, labels, registry=self._registry)

    def _histogram(self, name: str, told: str, buckets: Sequence[float], *labels: str) -> Any:
        return prometheus.Histogram(f"redraft_{name}", told, labels, registry=self._registry, buckets=buckets)

    def _gauge(self, name: str, told: str) -> Any:
        return prometheus.Gauge(f"redraft_{name}", told, registry=self._registry)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        text: bytes = prometheus.generate_latest(self._registry)
        return text

    def refined(self, model: str, answer: Answer, results: Sequence[Result]) -> None:
        """A refined answer."""
        told = answer.headers
        self.rounds.labels(model).observe(float(told[f"{PREFIX}rounds"]))
        self.overhead.labels(model).observe(float(told[f"{PREFIX}overhead-ms"]) / 1000)
        if f"{PREFIX}score-initial" in told and f"{PREFIX}score" in told:
            self.gain.labels(model).observe(float(told[f"{PREFIX}score"]) - float(told[f"{PREFIX}score-initial"]))
        for result in results:
            self.stops.labels(model, str(result.stop_reason)).inc()
            for attempt in result.attempts:
                lost = "cut_off" if cut_off(attempt) else "rejected"
                self.drafts.labels(model, "accepted" if attempt.accepted else lost).inc()

    def spent(self, model: str, run: Run) -> None:
        """What a run bought, however it ended."""
        for event in run.journal.events:
            if event.kind in ("call_failed", "call_error"):
                self.failures.labels(model, str(event.data.get("status") or "none")).inc()
            elif event.kind == "call":
                role, usage = str(event.data.get("role")), Usage(**event.data["usage"])
                self.calls.labels(model, role).inc()
                self.tokens.labels(model, role, "input").inc(usage.input_tokens)
                self.tokens.labels(model, role, "output").inc(usage.output_tokens)
                self.cost.labels(model, role).inc(usage.cost)
