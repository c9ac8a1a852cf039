"""Training sets out of runs: what is taught is what was accepted, in the form that TRL documents."""

import asyncio
import json
from collections import Counter
from dataclasses import replace

import pytest

from redraft import BestOfN, ChainOfThought, Critic, Module, Predict, Refine, Run, SelfRefine, checks, context
from redraft.journal import MemoryStore
from redraft.report.training import dpo, sft
from redraft.testing import FunctionLM, ScriptedLM

CHECKS = [checks.contains("La Maison"), checks.words(3, 9)]
BAD, GOOD = "Fine.", "Fine food at La Maison."


def kept(strategy, lm, **inputs):
    store = MemoryStore()
    with context(model=lm, store=store):
        run = Run(run_id="r", seed=1)
        asyncio.run(run.execute(strategy, strategy.bind(inputs or {"task": "eat"})))
    return store.read("r")


def made(kind, events):
    why_not = Counter()
    return list(kind("r", events, why_not)), why_not


def in_trl_s_form(example, *answers):
    """https://huggingface.co/docs/trl/dataset_formats: conversational prompt-completion, and explicit preference."""
    assert example["prompt"]
    assert all(set(m) == {"role", "content"} and isinstance(m["content"], str) for m in example["prompt"])
    assert example["prompt"][-1]["role"] == "user"
    for name in answers:
        (message,) = example[name]
        assert message["role"] == "assistant"
        assert message["content"].strip()
    return json.loads(json.dumps(example)) == example


def refined(*replies, module="task -> review", **options):
    return kept(Refine(Predict(module), N=3, checks=CHECKS, **options), ScriptedLM(list(replies)))


def test_an_accepted_draft_is_an_example_of_what_was_asked_first():
    (example,), why_not = made(sft, refined(BAD, GOOD))
    assert in_trl_s_form(example, "completion")
    assert example["completion"][0]["content"] == GOOD
    assert "eat" in example["prompt"][-1]["content"]
    assert (example["score"], example["run_id"], why_not) == (1.0, "r", {})


def test_hints_of_later_attempts_are_not_in_the_prompt():
    lm = ScriptedLM([BAD, GOOD])
    (example,), _ = made(sft, kept(Refine(Predict("task -> review"), N=3, checks=CHECKS), lm))
    assert example["prompt"] == [dict(m) for m in lm.requests[0].messages]


def test_what_does_not_pass_is_not_taught():
    examples, why_not = made(sft, refined(BAD, BAD, BAD))
    assert (examples, why_not) == ([], {"its checks did not pass": 1})


def test_the_best_draft_is_preferred_to_each_that_scores_below_it():
    examples, _ = made(dpo, refined(BAD, "La Maison.", GOOD))
    assert [example["rejected"][0]["content"] for example in examples] == [BAD, "La Maison."]
    for example in examples:
        assert in_trl_s_form(example, "chosen", "rejected")
        assert example["chosen"][0]["content"] == GOOD
        assert example["score_chosen"] > example["score_rejected"]


def test_equal_texts_and_equal_scores_make_no_pair():
    events = kept(
        BestOfN(Predict("task -> review"), N=6, reward_fn=lambda _, p: len(p.review)),
        FunctionLM(lambda request: "x" * (1 + request.seed % 3)),
    )
    examples, _ = made(dpo, events)
    texts = [example["rejected"][0]["content"] for example in examples]
    assert len(texts) == len(set(texts))
    assert all(example["chosen"][0]["content"] not in texts for example in examples)
    examples, why_not = made(dpo, refined(GOOD))
    assert (examples, why_not) == ([], {"no draft scores below the best one": 1})


def test_a_revision_is_an_answer_to_the_author_s_prompt():
    lm = ScriptedLM(["La Maison.", GOOD, json.dumps({"verdict": "ok", "issues": []})])
    events = kept(SelfRefine(Predict("task -> review"), Critic(), rounds=1, checks=CHECKS), lm)
    (example,), _ = made(dpo, events)
    assert (example["chosen"][0]["content"], example["rejected"][0]["content"]) == (GOOD, "La Maison.")
    assert example["prompt"] == [dict(m) for m in lm.requests[0].messages]


def test_a_typed_answer_is_taught_as_the_reply_that_gave_it():
    right, wrong = (json.dumps({"reasoning": "hm", "answer": text}) for text in ("yes", "no"))
    events = kept(
        Refine(ChainOfThought("task -> answer"), N=2, checks=[checks.contains("yes")]), ScriptedLM([wrong, right])
    )
    (example,), _ = made(sft, events)
    assert json.loads(example["completion"][0]["content"]) == {"reasoning": "hm", "answer": "yes"}
    (pair,), _ = made(dpo, events)
    assert json.loads(pair["rejected"][0]["content"])["answer"] == "no"


class Two(Module):
    def __init__(self):
        self.plan, self.write = Predict("task -> plan"), Predict("plan -> review")

    async def aforward(self, task):
        return await self.write.acall(plan=(await self.plan.acall(task=task)).plan)


def image(task):
    return [{"type": "text", "text": task}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]


@pytest.mark.parametrize(
    ("module", "replies", "why"),
    [
        (Two(), ["plan", GOOD], "several modules made it"),
        (lambda task: GOOD, [], "no call of its author is on record"),
    ],
)
def test_what_is_no_single_reply_is_left_out_and_said(module, replies, why):
    examples, why_not = made(sft, kept(Refine(module, N=1, checks=CHECKS), ScriptedLM(replies)))
    assert (examples, why_not) == ([], {why: 1})


def test_a_run_that_never_ended_teaches_nothing():
    events = [e for e in refined(BAD, GOOD) if e.kind != "stop"]
    for kind in (sft, dpo):
        assert made(kind, events) == ([], {"it never ended": 1})


def test_a_prompt_with_an_image_is_left_out():
    events = refined(BAD, GOOD)
    for at, event in enumerate(events):
        if event.kind == "intent":
            body = json.loads(event.data["content"])
            body["messages"][-1]["content"] = image("eat")
            events[at] = replace(event, data={**event.data, "content": json.dumps(body)})
    assert made(sft, events) == ([], {"its prompt is not text alone": 1})
