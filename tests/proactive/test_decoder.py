"""ProactiveDecoder as a strategy: bought through a Run, judged, kept, resumed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import DOGS, WORDS, dogs

from redraft import Budget, Predict, Run, SqliteStore, StopReason, checks
from redraft.errors import BudgetExceeded, InputError, RunFailed, ScoreError, UnsupportedError
from redraft.frame import entered
from redraft.lm.cut import CUT, Cut
from redraft.proactive import DynamicBacktracker, ProactiveDecoder, RandomSignal, RefinementSignal
from redraft.proactive.backend import check_proven
from redraft.proactive.scripted import END, TableLM
from redraft.proactive.view import rewinds_view
from redraft.testing import ScriptedLM
from redraft.types import Capabilities, Request

RULES = [checks.forbids("dull"), checks.sentences(2)]


def decoder(lm, rules=RULES, **options):
    return ProactiveDecoder(Predict("topic -> line", lm=lm, temperature=0.0, max_tokens=30), checks=rules, **options)


def rewinds(result):
    return [e.data for e in result.events if e.kind == "rewind"]


def spent(result):
    return [e.data["tokens"] for e in result.events if e.kind == "decoded"][-1]


@pytest.mark.parametrize("ids", [True, False])
def test_the_golden_run(ids):
    lm = dogs(ids=ids)
    result = decoder(lm)(topic="dogs")
    assert result.line == "A red dog. It runs."
    assert result.stop_reason is StopReason.PASSED
    assert [(a.text, a.rung, a.accepted) for a in result.attempts] == [
        ("A red dog.", "tell", True),
        ("A red dog. It runs.", "rewind", True),
    ]
    assert [(r["cause"], r["by"], r["taken"], r["put"]) for r in rewinds(result)] == [
        ("guard", "forbids", " dull dog", " red"),
        ("end", "the checks", "", " It"),
    ]


def test_one_call_and_the_same_text_where_nothing_triggers():
    lm = dogs()
    result = decoder(lm, [checks.contains("dog")])(topic="dogs")
    plain = Predict("topic -> line", lm=dogs(), temperature=0.0)(topic="dogs")
    assert result.line == plain.line
    assert (result.usage.calls, lm.forwards) == (1, 5)


def test_every_token_that_was_written_is_charged_and_said():
    lm = dogs()
    result = decoder(lm, signal=RandomSignal(1.0), back=DynamicBacktracker(reach=(1, 9), gap=1))(topic="dogs")
    assert result.usage.output_tokens == lm.forwards == sum(spent(result).values())
    assert spent(result)["signal"] > 0
    assert result.usage.exact


def test_a_cut_stream_is_charged_what_was_seen_and_what_may_have_been_written_beyond():
    lm = dogs(ids=False)
    del lm.overshoot
    result = decoder(lm, [checks.forbids("dull")])(topic="dogs")
    cut = [e for e in result.events if e.kind == "call" and e.data["completion"]["choices"][0]["finish_reason"] == CUT]
    assert [e.data["usage"]["uncertain_tokens"] for e in cut] == [30 - 3]
    assert not result.usage.exact


def test_without_anything_to_judge_by_the_first_text_is_the_result():
    result = decoder(dogs(), [])(topic="dogs")
    assert (result.line, result.stop_reason, result.usage.calls) == ("A dull dog.", StopReason.ROUNDS, 1)


def test_the_best_is_kept_where_nothing_passes():
    result = decoder(dogs(), [checks.forbids("dull"), checks.contains("blue")])(topic="dogs")
    assert result.stop_reason is StopReason.ROUNDS
    assert "dull" not in result.line
    assert result.score == max(a.score.value for a in result.attempts)


def test_a_text_that_is_doomed_whatever_comes_is_handed_over_as_it_is():
    result = decoder(TableLM(lambda _: {"a": 0.6, "b": 0.4}, [END, "a", "b"]), [checks.chars(at_most=0)])(topic="x")
    assert (result.line, result.stop_reason) == ("a", StopReason.ROUNDS)
    assert not result.passed


def test_when_the_budget_ends_the_text_so_far_is_the_result():
    result = decoder(dogs(), budget=Budget(calls=2))(topic="dogs")
    assert (result.line, result.stop_reason, result.usage.calls) == ("A red dog.", StopReason.BUDGET, 2)
    assert result.attempts[1].reason.startswith("it was not finished: the limit of 2 calls")
    with pytest.raises((BudgetExceeded, RunFailed)):
        decoder(dogs(), budget=Budget(tokens=1))(topic="dogs")


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 120),
    calls=st.integers(1, 12),
    rate=st.floats(0, 1),
    seed=st.integers(0, 9),
    ids=st.booleans(),
)
def test_no_budget_is_exceeded_and_the_result_is_never_below_the_first_draft(tokens, calls, rate, seed, ids):
    lm = dogs(ids=ids)
    strategy = ProactiveDecoder(
        Predict("topic -> line", lm=lm, temperature=1.0, max_tokens=12),
        checks=[checks.forbids("dull"), checks.sentences(3)],
        signal=RandomSignal(rate, seed),
        back=DynamicBacktracker(reach=(1, 6), gap=2, most=6),
        budget=Budget(tokens=tokens, calls=calls),
    )
    try:
        result = strategy(topic="dogs")
    except (BudgetExceeded, RunFailed) as error:
        assert error.usage.tokens <= tokens
        return
    assert result.usage.tokens + result.usage.uncertain_tokens <= tokens
    assert result.usage.calls <= calls
    first = result.attempts[0]
    assert first.score is None or result.score >= first.score.value


def test_a_killed_run_goes_on_where_it_was_and_buys_nothing_twice(tmp_path):
    whole = dogs()
    signal, back = RandomSignal(0.5, 2), DynamicBacktracker(reach=(1, 9), gap=2)
    want = decoder(whole, signal=signal, back=back)
    expected = Run(seed=7)
    full = _executed(want, expected)
    for calls in range(1, full.usage.calls):
        store = SqliteStore(tmp_path / f"{calls}.db")
        first, again = dogs(), dogs()
        _executed(
            decoder(first, signal=signal, back=back), Run(seed=7, run_id="r", store=store, budget=Budget(calls=calls))
        )
        result = _executed(decoder(again, signal=signal, back=back), Run(run_id="r", store=store))
        assert result.line == full.line
        assert first.forwards + again.forwards == whole.forwards
        kinds = [e.kind for e in result.events]
        assert "diverged" not in kinds
        assert rewinds(result) == rewinds(full), "each once, however often the run was begun"
        store.close()


def _executed(strategy, run):
    from redraft.sync import run_sync

    return run_sync(lambda: run.execute(strategy, {"topic": "dogs"}))


def test_a_reply_that_was_cut_stands_in_no_cache():
    from redraft import context

    class Kept(dict):
        def put(self, key, text):
            self[key] = text

        def forget(self, begin):
            del begin

    with context(cache=(cache := Kept())):
        decoder(dogs())(topic="dogs")
    assert cache == {}


def test_a_guard_that_raises_is_named_and_not_taken_for_the_models_fault():
    class Broken(checks.Check):
        name = "broken"

        def guard(self, prefix):
            raise KeyError(prefix)

        def judge(self, value):
            return 1.0, ""

    with pytest.raises(ScoreError, match="KeyError in the guard of check 'broken'"):
        decoder(dogs(), [Broken()])(topic="dogs")


def test_guards_of_soft_checks_and_of_other_fields_stop_nothing():
    result = decoder(dogs(), [checks.forbids("dull", hard=False), checks.contains("dog")])(topic="dogs")
    assert not [r for r in rewinds(result) if r["cause"] == "guard"]


def test_a_signal_with_checks_repairs_what_guards_cannot_see():
    lm = dogs()
    back = DynamicBacktracker(reach=(1, 20), keep=0.0)
    rule = checks.check(lambda text: "red" in text, tell=False)
    result = decoder(lm, [rule], signal=RefinementSignal("confidence", 0.65), back=back)(topic="dogs")
    assert result.passed
    assert rewinds(result)[0]["cause"] == "signal"


@pytest.mark.parametrize("missing", ["logprobs", "prefill"])
def test_a_model_that_cannot_be_taken_back_is_refused_before_it_is_asked(missing):
    able = {name: name != missing for name in ("logprobs", "prefill")}
    lm = ScriptedLM(["never"], capabilities=Capabilities(**able))
    with pytest.raises(UnsupportedError, match=missing):
        decoder(lm)(topic="dogs")
    assert lm.left == 1


def test_a_model_that_says_it_can_is_asked_to_show_it():
    lm = ScriptedLM(["Sure! One, two"])
    with pytest.raises(UnsupportedError, match="does not report the likely tokens"):
        decoder(lm)(topic="dogs")
    assert lm.requests[0].prefill == "One, two, three,"


async def test_a_model_that_goes_on_counting_has_shown_it_once_for_all():
    lm = TableLM(
        lambda _: {" four": 0.9, " five": 0.1},
        ["One,", " two,", " three,", " four", " five", END],
        ids=False,
        name="api/x",
    )
    async with Run() as run:
        with entered(run._frame):
            await check_proven(run, lm)
            await check_proven(run, lm)
    assert len(lm.requests) == 1
    starts_over = TableLM(lambda _: {"One,": 0.9, " two,": 0.1}, lm.words, ids=False, name="api/y")
    async with Run() as run:
        with entered(run._frame), pytest.raises(UnsupportedError, match="it wrote 'One,One,One,One,'"):
            await check_proven(run, starts_over)


@pytest.mark.parametrize("module", ["question -> answer: int", "question -> a, b", lambda **_: "x"])
def test_only_one_text_can_be_taken_back(module):
    with pytest.raises(InputError, match="one text as its output"):
        ProactiveDecoder(module)


async def test_a_cut_ends_the_stream_and_hears_nothing_more():
    lm, heard = dogs(ids=False), []
    cut = Cut(lm, lambda tokens: tokens[-1]["token"] == " dull")
    reply = await cut.generate(Request(messages=(), temperature=0.0, logprobs=8, max_tokens=9), heard.append)
    assert (reply.text, reply.finish_reason) == ("A dull", CUT)
    assert len(reply.logprobs) == 2
    assert "".join(delta.text for delta in heard) == "A dull"
    whole = await Cut(lm, lambda _: False).generate(Request(messages=(), temperature=0.0, logprobs=8))
    assert (whole.text, whole.finish_reason) == ("A dull dog.", "stop")


async def test_what_a_cut_model_raises_comes_out():
    from redraft.errors import TransientLMError

    lm = ScriptedLM([TransientLMError("gone")])
    with pytest.raises(TransientLMError, match="gone"):
        await Cut(lm, lambda _: False).generate(Request(messages=()))


def test_the_view_shows_what_was_taken_back():
    result = decoder(dogs())(topic="dogs")
    assert rewinds_view(result.events, result.text).splitlines() == [
        "token 3 -> 1  cannot pass forbids",
        "    A[- dull dog-]{+ red+}",
        "token 5 -> 4  ended without passing: the checks",
        "    A red dog.{+ It+}",
        "tokens written: the text 3, after guards 3, after ends that did not pass 3",
        "",
        "A red dog. It runs.",
    ]
    coloured = rewinds_view(result.events, "\x1b[2J", colour=True)
    assert "\x1b[31;9m dull dog\x1b[0m\x1b[32m red\x1b[0m" in coloured
    assert "\x1b[2J" not in coloured


def test_the_command_line_says_and_shows_what_was_taken_back(monkeypatch):
    from click.testing import CliRunner

    from redraft import registry
    from redraft.cli import main

    monkeypatch.setitem(registry._KNOWN["models"], "table", lambda name, base_url=None: dogs())
    argv = [
        "run",
        "Write",
        "-m",
        "table/x",
        "--strategy",
        "proactive",
        "--check",
        "forbids:dull",
        "--check",
        "sentences:2",
    ]
    said = CliRunner().invoke(main, [*argv, "-t", "0", "--max-tokens", "30"])
    assert said.stdout == "A red dog. It runs.\n"
    assert "rewind    2 tokens, forbids: ' dull dog' -> ' red'" in said.stderr
    shown = CliRunner().invoke(main, [*argv, "-t", "0", "--max-tokens", "30", "--show", "rewinds"])
    assert "    A[- dull dog-]{+ red+}\n" in shown.stdout


def test_it_loads_no_torch():
    script = "import sys, redraft.proactive; print(sorted({'torch', 'transformers', 'xllamacpp'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_registry_knows_it():
    from redraft import registry

    assert registry.find("strategies", "proactive") is ProactiveDecoder
    assert len(WORDS) == len(set(WORDS))
    assert DOGS(()) == {"A": 1.0}
