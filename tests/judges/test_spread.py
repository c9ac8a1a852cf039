"""How far a judge's scores of one draft lie apart; and which family a judge is of."""

from __future__ import annotations

import pytest

from redraft import context
from redraft.errors import InputError, LMError, ScoreError
from redraft.judges import Rubric, Spread, family
from redraft.testing import FunctionLM, ScriptedLM
from redraft.types import Score


def test_the_spread_of_a_rubric(say):
    lm = ScriptedLM([say.verdict(v) for v in (2, 4, "unsure", 3)])
    said = Spread(Rubric("clear", lm=lm), times=4)(task="t", draft="d")
    assert sorted(said.scores) == [0.25, 0.5, 0.75]
    assert (said.mean, said.low, said.high, said.abstained) == (0.5, 0.25, 0.75, 0.25)
    assert said.deviation == pytest.approx(0.25)


def test_every_time_is_another_sample(say):
    """A fixed seed must not make a shaky judge look steady."""
    lm = FunctionLM(lambda r: say.verdict(1 + r.seed % 5))
    with context(seed=7):
        Spread(Rubric("clear", lm=lm, temperature=1.0), times=6)(task="t", draft="d")
    assert len({r.seed for r in lm.requests}) == 6


@pytest.mark.parametrize("give", [float, Score, dict], ids=["number", "Score", "mapping"])
def test_any_function_can_be_measured(give):
    values = iter([0.2, 0.4, 0.6])

    async def judge(draft):
        value = next(values)
        return {float: value, Score: Score(value=value), dict: {"score": value}}[give]

    said = Spread(judge, times=3)(draft="d")
    assert (said.mean, said.deviation) == (pytest.approx(0.4), pytest.approx(0.2))


def test_nothing_but_abstentions_has_no_numbers():
    said = Spread(lambda draft: None, times=3)(draft="d")
    assert (said.scores, said.mean, said.deviation, said.low, said.abstained) == ([], None, None, None, 1.0)


def test_one_score_has_no_deviation():
    values = iter([0.5, None])
    assert Spread(lambda draft: next(values), times=2)(draft="d").deviation is None


def test_a_failing_model_is_no_abstention():
    with pytest.raises(LMError):
        Spread(Rubric("clear", lm=ScriptedLM([])))(task="t", draft="d")


def test_once_is_no_retest():
    with pytest.raises(InputError, match="times=1"):
        Spread(len, times=1)


def test_what_is_no_score_is_an_abstention_only_if_it_says_so():
    def judge(draft):
        raise ScoreError("no verdict")

    assert Spread(judge, times=2)(draft="d").abstained == 1.0


@pytest.mark.parametrize(
    ("name", "kin"),
    [
        ("openai/gpt-4.1-mini", "gpt"),
        ("o3-mini", "gpt"),
        ("chatgpt-4o-latest", "gpt"),
        ("ft:gpt-4o:acme::x1", "gpt"),
        ("anthropic/claude-sonnet-4", "claude"),
        ("google/gemini-2.5-pro", "gemini"),
        ("gemma-3-4b-it", "gemini"),
        ("accounts/x/models/llama-v3p1-8b", "llama"),
        ("TinyLlama-1.1B", "llama"),
        ("Qwen/Qwen2.5-0.5B-Instruct", "qwen"),
        ("qwq-32b", "qwen"),
        ("mixtral-8x7b", "mistral"),
        ("ministral-8b", "mistral"),
        ("local/smollm2-135m", "smollm"),
        ("local/models/SmolLM2-1.7B.Q8_0.gguf", "smollm"),
        ("deepseek-r1-distill-qwen-7b", "deepseek"),
        ("microsoft/phi-4", "phi"),
        ("delphi-2", "delphi"),
        ("acme/wonder-7b:free", "wonder"),
        ("7b", "7b"),
        ("", ""),
    ],
)
def test_families(name, kin):
    assert family(name) == kin
