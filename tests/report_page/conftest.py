"""Runs to look at: real ones on scripted models, and journals made by hand."""

import asyncio
import contextlib

import pytest
from page_runs import BRIEF, CHECKS, FULL, LONGER, Journal

from redraft import Predict, Refine, Run, SelfRefine, context
from redraft.errors import RedraftError
from redraft.journal import MemoryStore
from redraft.testing import ScriptedLM


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def ran(store):
    """`ran(strategy, lm, **inputs)` is the events of that run, whatever came of it."""

    def run(strategy, lm, run_id="r", **inputs):
        with context(model=lm, store=store):
            run = Run(run_id=run_id, seed=1)
            with contextlib.suppress(RedraftError):
                asyncio.run(run.execute(strategy, strategy.bind(inputs or {"task": "Review La Maison"})))
        return store.read(run_id)

    return run


@pytest.fixture
def refined(ran):
    """Three drafts, the last one passes."""
    return ran(Refine(Predict("task -> review"), N=3, checks=CHECKS), ScriptedLM([BRIEF, LONGER, FULL]))


@pytest.fixture
def self_refined(ran):
    """`self_refined(*replies)`: author, then critic, reviser and judges in turn."""

    def run(*replies, checks=(), rounds=3):
        # no critic but the author's own model; an edit is shown the draft
        strategy = SelfRefine(Predict("task -> poem"), rounds=rounds, revise="edit", checks=checks)
        return ran(strategy, ScriptedLM(list(replies)))

    return run


@pytest.fixture
def journal():
    made = Journal()
    made("run", key="run", seed=1, version=1, budget={"calls": None, "tokens": None, "cost": None, "seconds": None})
    return made
