"""What refinement kept becomes demos of the plain program: of accepted drafts only, and nothing leaks."""

import asyncio
import re
from collections import OrderedDict, namedtuple

import pytest

from redraft import (
    BestOfN,
    BootstrapFewShot,
    Budget,
    ChainOfThought,
    Module,
    Predict,
    Refine,
    Run,
    SelfRefine,
    SqliteStore,
    check,
    checks,
)
from redraft.errors import InputError, RunFailed, TransientLMError
from redraft.evaluate import Evaluate, Example
from redraft.journal import MemoryStore
from redraft.testing import FunctionLM, ScriptedLM


def examples(n, start=0):
    return [Example(q=f"word{i}", a=f"WORD{i}").with_inputs("q") for i in range(start, start + n)]


def right(example, prediction):
    return prediction.a == example.a


loud = check(str.isupper, name="loud", tell=False)


def learner(fails=1):
    """Right when it has been shown how, or on the try after so many failures a word; else it whispers."""
    tries = {}

    def answer(request):
        word = re.findall(r"word\d+", request.messages[-1]["content"])[-1]
        tries[word] = tries.get(word, 0) + 1
        taught = any(m["role"] == "assistant" for m in request.messages)
        return word.upper() if taught or tries[word] > fails else f"{word}?"

    return FunctionLM(answer)


def said_by(turns):
    return [m["content"] for m in turns if m["role"] == "assistant"]


def test_what_cost_refinement_is_learned_and_held_out_items_rise():
    lm = learner()
    program = Predict("q -> a", lm=lm)
    optimizer = BootstrapFewShot(right, max_bootstrapped_demos=2)
    compiled = optimizer.compile(program, examples(5), teacher=Refine(program, N=3, checks=[loud], fix=False))
    assert [d.to_dict() for d in compiled.demos] == [{"q": "word0", "a": "WORD0"}, {"q": "word1", "a": "WORD1"}]
    assert program.demos == ()
    report = Evaluate(examples(6, start=50), right, baselines=False)({"before": program, "after": compiled})
    assert (report["before"].score, report["after"].score) == (0.0, 1.0)
    assert report["after"].usage.calls == 6
    said = optimizer.report
    assert (said.examples, len(said.tried), said.passed, said.learned, said.usage.calls) == (5, 2, 2, 2, 4)
    assert str(said).splitlines()[:2] == ["2 examples of 5 became demos: 2 tried, 2 passed", "the predictor: 2 demos"]
    assert str(said).splitlines()[-1].startswith("compiling took 4 calls | ")


def test_no_rejected_draft_becomes_a_demo():
    lm = ScriptedLM(["word0 bad", "word0 worse", "WORD0"])
    program = Predict("q -> a", lm=lm)
    teacher = BestOfN(program, N=3, checks=[loud])
    compiled = BootstrapFewShot(right).compile(program, examples(1), teacher=teacher)
    assert [demo.a for demo in compiled.demos] == ["WORD0"]
    assert lm.left == 0


def test_a_draft_that_fails_its_own_checks_teaches_nothing_and_is_not_judged():
    asked = []

    def metric(example, prediction):
        asked.append(prediction)
        return True

    program = Predict("q -> a", lm=ScriptedLM(["whisper", "whisper"]))
    optimizer = BootstrapFewShot(metric)
    compiled = optimizer.compile(program, examples(1), teacher=Refine(program, N=2, checks=[loud], fix=False))
    assert compiled.demos == () and asked == []
    assert optimizer.report.reasons == {"the draft that was kept fails the teacher's own checks": 1}


def test_a_mended_and_an_edited_draft_are_learned_as_they_were_kept():
    mended = Predict("q -> a", lm=ScriptedLM(["word0"]))
    compiled = BootstrapFewShot(right).compile(
        mended, examples(1), teacher=Refine(mended, N=2, checks=[checks.uppercase()])
    )
    assert [demo.a for demo in compiled.demos] == ["WORD0"]
    edited = Predict("q -> a", lm=ScriptedLM(["word0", "say it loud", "WORD0", "OK"]))
    critic_said = []

    def critic(text):
        critic_said.append(text)
        return None if text.isupper() else "say it loud"

    edited.lm = ScriptedLM(["word0", "WORD0"])
    teacher = SelfRefine(edited, critic=critic, rounds=1, revise="edit", judge=lambda task, new, old: True)
    compiled = BootstrapFewShot(right).compile(edited, examples(1), teacher=teacher)
    assert [d.to_dict() for d in compiled.demos] == [{"q": "word0", "a": "WORD0"}]
    assert critic_said == ["word0"]


class Two(Module):
    """Facts first, then a line about them."""

    def __init__(self, lm, inner=None):
        self.facts = Predict("q -> facts", lm=lm)
        write = Predict("facts -> a", lm=lm)
        self.steps = [inner(write) if inner else write]

    def forward(self, q):
        return self.steps[0](facts=self.facts(q=q).facts)


def test_each_predictor_learns_its_own_calls_of_the_accepted_attempt():
    lm = ScriptedLM(["bad facts", "bad line", "good facts", "WORD0"])
    program = Two(lm)
    teacher = Refine(program, N=2, checks=[loud], fix=False, advisor=False)
    optimizer = BootstrapFewShot(right)
    compiled = optimizer.compile(program, examples(1), teacher=teacher)
    assert [d.to_dict() for d in compiled.facts.demos] == [{"q": "word0", "facts": "good facts"}]
    assert [d.to_dict() for d in compiled.steps[0].demos] == [{"facts": "good facts", "a": "WORD0"}]
    assert isinstance(compiled, Two) and compiled.facts is not program.facts and compiled.facts.lm is lm
    assert program.facts.demos == program.steps[0].demos == ()
    assert optimizer.report.demos == {"facts": 1, "steps[0]": 1}


def test_strategies_inside_the_program_give_what_they_kept():
    lm = ScriptedLM(["facts", "bad line", "worse line", "WORD0"])
    program = Two(lm, inner=lambda write: BestOfN(write, N=3, checks=[loud]))
    compiled = BootstrapFewShot(right).compile(program, examples(1))
    assert [d.to_dict() for d in compiled.steps[0].module.demos] == [{"facts": "facts", "a": "WORD0"}]
    assert program.steps[0].module.demos == ()


def test_a_rejected_outer_attempt_hides_what_was_kept_inside_it():
    lm = ScriptedLM(["facts one", "QUIET", "facts two", "WORD0"])
    program = Two(lm, inner=lambda write: BestOfN(write, N=1, checks=[loud]))
    known = check(lambda text: text.startswith("WORD"), name="known", tell=False)
    teacher = Refine(program, N=2, checks=[known], fix=False)
    compiled = BootstrapFewShot(right).compile(program, examples(1), teacher=teacher)
    assert [demo.facts for demo in compiled.facts.demos] == ["facts two"]
    assert [demo.a for demo in compiled.steps[0].module.demos] == ["WORD0"]


def test_critics_judges_and_advisors_are_no_predictors_of_the_program():
    critic_lm = FunctionLM(lambda request: "OK")
    program = Two(
        ScriptedLM(["facts", "WORD0"]),
        inner=lambda w: SelfRefine(w, critic=Predict("task, draft -> issues", lm=critic_lm), rounds=1),
    )
    optimizer = BootstrapFewShot(right)
    compiled = optimizer.compile(program, examples(1))
    assert optimizer.report.demos == {"facts": 1, "steps[0].module": 1}
    assert compiled.steps[0].critic.demos == ()
    assert len(critic_lm.requests) == 1


def test_an_answer_by_code_after_the_modules_gives_no_demo_and_says_so(capsys):
    class Canned(Module):
        def __init__(self, lm):
            self.unused = Predict("q -> a", lm=lm)

        def forward(self, q):
            return {"a": q.upper()}

    optimizer = BootstrapFewShot(right)
    compiled = optimizer.compile(Canned(ScriptedLM([])), examples(2))
    assert compiled.unused.demos == ()
    assert (optimizer.report.passed, optimizer.report.learned) == (2, 0)
    assert optimizer.report.reasons == {"unused answered nothing in the draft that was kept": 2}
    assert "NO example of 2 became a demo: 2 tried, 2 passed" in capsys.readouterr().err


def test_reasoning_is_learned_with_the_answer():
    lm = ScriptedLM(['{"reasoning": "loud is right", "a": "WORD0"}', '{"reasoning": "again", "a": "X"}'])
    compiled = BootstrapFewShot(right).compile(ChainOfThought("q -> a", lm=lm), examples(1))
    compiled(q="y")
    assert said_by(lm.requests[1].messages) == ['{"reasoning": "loud is right", "a": "WORD0"}']


def test_a_student_that_is_a_strategy_stays_one():
    lm = learner(fails=0)
    student = Refine(Predict("q -> a", lm=lm), N=2, checks=[loud])
    compiled = BootstrapFewShot(right).compile(student, examples(1))
    assert isinstance(compiled, Refine) and compiled.N == 2
    assert [demo.q for demo in compiled.module.demos] == ["word0"]
    assert student.module.demos == ()


def test_no_example_is_shown_its_own_answer():
    """Labelled examples go into the teacher's prompt, but never the one that is tried, nor one that asks the same."""
    lm = FunctionLM(lambda request: "no")
    twins = [*examples(4), Example(q="word1", a="WORD1 again").with_inputs("q")]
    optimizer = BootstrapFewShot(right, max_labeled_demos=5)
    compiled = optimizer.compile(Predict("q -> a", lm=lm), twins)
    for request, example in zip(lm.requests, twins, strict=True):
        shown = said_by(request.messages)
        assert len(shown) == (3 if example.q == "word1" else 4)
        assert all(example.a.split()[0] not in text for text in shown)
    assert len(compiled.demos) == 5
    assert optimizer.report.labeled == {"": 5}


def test_a_demo_is_not_shown_to_the_example_that_it_came_from():
    lm = learner(fails=0)
    once = BootstrapFewShot(right, max_bootstrapped_demos=2).compile(Two2(lm), examples(3))
    before = len(lm.requests)
    BootstrapFewShot(right, max_bootstrapped_demos=3).compile(Two2(lm), examples(3), teacher=once)
    for request, (demos, word) in zip(
        lm.requests[before:], [(1, "0"), (1, "0"), (1, "1"), (1, "1"), (2, "2"), (2, "2")], strict=True
    ):
        shown = said_by(request.messages)
        assert len(shown) == demos and all(f"WORD{word}" not in text for text in shown)


def test_a_demo_of_ones_own_that_asks_the_same_is_not_shown_either():
    lm = learner(fails=0)
    program = Predict("q -> a", lm=lm)
    program.demos = [{"q": "word1", "a": "WORD1"}, {"q": "other", "a": "OTHER"}]
    BootstrapFewShot(right).compile(program, examples(3))
    assert [said_by(r.messages) for r in lm.requests] == [["WORD1", "OTHER"], ["OTHER"], ["WORD1", "OTHER"]]


def test_equal_examples_are_tried_each_and_shown_once():
    lm = learner(fails=0)
    optimizer = BootstrapFewShot(right)
    compiled = optimizer.compile(Predict("q -> a", lm=lm), [*examples(2), *examples(2)])
    assert [demo.q for demo in compiled.demos] == ["word0", "word1"]
    assert optimizer.report.learned == 4 and optimizer.report.demos == {"": 2}
    assert len({r.seed for r in lm.requests}) == 4


class Two2(Module):
    """The second predictor's demos have none of the example's inputs."""

    def __init__(self, lm):
        self.first, self.second = Predict("q -> mid", lm=lm), Predict("mid -> a", lm=lm)

    def forward(self, q):
        return self.second(mid=self.first(q=q).mid.lower())


def test_labelled_examples_fill_up_and_only_whole_ones():
    lm = learner(fails=0)
    optimizer = BootstrapFewShot(right, max_bootstrapped_demos=1, max_labeled_demos=3)
    odd = Example(q="word9", other="x").with_inputs("q")
    compiled = optimizer.compile(Predict("q -> a", lm=lm), [*examples(6), odd])
    assert compiled.demos[0].to_dict() == {"q": "word0", "a": "WORD0"}
    assert len(compiled.demos) == 3 and len({demo.q for demo in compiled.demos}) == 3
    again = optimizer.compile(Predict("q -> a", lm=lm), [*examples(6), odd])
    assert again.demos == compiled.demos
    other = BootstrapFewShot(right, max_bootstrapped_demos=1, max_labeled_demos=3, seed=7)
    assert other.compile(Predict("q -> a", lm=lm), [*examples(6), odd]).demos != compiled.demos


def test_labelled_examples_alone_cost_nothing():
    optimizer = BootstrapFewShot(right, max_bootstrapped_demos=0, max_labeled_demos=2)
    compiled = optimizer.compile(Predict("q -> a", lm=ScriptedLM([])), examples(3))
    assert len(compiled.demos) == 2 and {demo.a for demo in compiled.demos} < {"WORD0", "WORD1", "WORD2"}
    assert str(optimizer.report).splitlines() == [
        "no example was tried",
        "the predictor: 0 demos and 2 labelled examples",
        "compiling took 0 calls | 0 tokens | $0.00",
    ]


def test_rounds_try_again_warmer_and_stop_at_the_first_that_passes():
    lm = learner(fails=2)
    optimizer = BootstrapFewShot(right, max_rounds=4)
    optimizer.compile(Predict("q -> a", lm=lm, temperature=0.1), examples(1))
    assert [r.temperature for r in lm.requests] == [0.1, 0.9, 0.9]
    assert len({r.seed for r in lm.requests}) == 3
    assert (optimizer.report.tried[0].rounds, optimizer.report.learned) == (3, 1)


def test_numbers_pass_at_one_or_at_the_threshold():
    def half(example, prediction):
        return 0.5

    def learned(**options):
        optimizer = BootstrapFewShot(half, **options)
        optimizer.compile(Predict("q -> a", lm=learner(0)), examples(1))
        return optimizer.report.learned, optimizer.report.reasons, optimizer.report.tried[0].score

    assert learned() == (0, {"the metric says no": 1}, 0.5)
    assert learned(metric_threshold=0.5) == (1, {}, 0.5)
    assert learned(metric_threshold=0.6) == (0, {"the metric gives less than 0.6": 1}, 0.5)


def test_without_a_metric_the_teachers_checks_decide():
    program = Predict("q -> a", lm=learner())
    compiled = BootstrapFewShot().compile(program, examples(2), teacher=Refine(program, checks=[loud], fix=False))
    assert [demo.a for demo in compiled.demos] == ["WORD0", "WORD1"]
    with pytest.raises(InputError, match="nothing to judge by"):
        BootstrapFewShot().compile(program, examples(2))


def test_a_metric_of_dspys_form_is_shown_what_was_kept():
    seen = []

    def metric(example, pred, trace=None):
        seen.append(None if trace is None else [(p.signature.name, i, o.to_dict()) for p, i, o in trace])
        return True

    program = Two(ScriptedLM(["bad", "line", "facts", "WORD0"]))
    BootstrapFewShot(metric).compile(program, examples(1), teacher=Refine(program, N=2, checks=[loud], fix=False))
    assert seen == [
        [
            ("q -> facts", {"q": "word0"}, {"facts": "facts"}),
            ("facts -> a", {"facts": "facts"}, {"a": "WORD0"}),
        ]
    ]

    seen.clear()
    single = Predict("q -> a", lm=ScriptedLM(["quiet", "WORD0"]))
    BootstrapFewShot(metric).compile(single, examples(1), teacher=BestOfN(single, N=2, checks=[loud]))
    assert seen == [[("q -> a", {"q": "word0"}, {"a": "WORD0"})]]

    def other(example, prediction, least=0):
        return least == 0

    optimizer = BootstrapFewShot(other)
    optimizer.compile(Predict("q -> a", lm=learner(0)), examples(1))
    assert optimizer.report.learned == 1


def test_an_async_metric_that_asks_a_model_is_paid_for_by_compiling():
    judge = Predict("answer -> verdict", lm=FunctionLM(lambda r: "yes"))

    async def metric(example, prediction):
        return (await judge.acall(answer=prediction.a)).verdict == "yes"

    optimizer = BootstrapFewShot(metric)
    compiled = optimizer.compile(Predict("q -> a", lm=learner(0)), examples(2))
    assert len(compiled.demos) == 2
    assert optimizer.report.usage.calls == 4


def test_the_budget_ends_it_with_what_there_is():
    program = Predict("q -> a", lm=learner())
    teacher = Refine(program, N=3, checks=[loud], fix=False)
    optimizer = BootstrapFewShot(right, budget=Budget(calls=5))
    compiled = optimizer.compile(program, examples(9), teacher=teacher)
    assert [demo.a for demo in compiled.demos] == ["WORD0", "WORD1"]
    assert optimizer.report.usage.calls == 5
    assert "PARTIAL: " in str(optimizer.report) and "5 calls" in str(optimizer.report)
    assert optimizer.report.stopped.limit == "calls"


def test_a_budget_of_the_teachers_own_ends_one_example_only():
    program = Predict("q -> a", lm=learner(fails=2))
    teacher = Refine(program, N=9, checks=[loud], fix=False, budget=Budget(calls=2))
    optimizer = BootstrapFewShot(right)
    optimizer.compile(program, examples(3), teacher=teacher)
    assert len(optimizer.report.tried) == 3 and optimizer.report.stopped is None


def test_metrics_that_raise_are_errors_and_too_many_end_it():
    def metric(example, prediction):
        if example.q != "word2":
            raise ZeroDivisionError("by nought")
        return True

    program = Predict("q -> a", lm=learner(0))
    optimizer = BootstrapFewShot(metric, max_errors=4)
    compiled = optimizer.compile(program, examples(9))
    assert [demo.q for demo in compiled.demos] == ["word2"]
    assert len(optimizer.report.tried) == 5
    assert optimizer.report.reasons == {"failed with ScoreError": 4}
    assert "4 examples failed with an error, as many as max_errors allows; the first: example 0, ScoreError" in str(
        optimizer.report.stopped
    )


def test_errors_alone_are_raised_with_the_first_and_the_receipt():
    lm = FunctionLM(lambda request: 1 / 0)
    with pytest.raises(RunFailed, match="nothing was learned: the first: example 0, LMError") as caught:
        BootstrapFewShot(right, max_errors=2).compile(Predict("q -> a", lm=lm), examples(9))
    assert caught.value.usage.calls == 2 == len(lm.requests)

    def metric(example, prediction):
        return "good"

    with pytest.raises(RunFailed, match="returned 'good' as a score"):
        BootstrapFewShot(metric).compile(Predict("q -> a", lm=learner(0)), examples(1))


def test_replies_that_do_not_parse_are_no_errors_of_the_program():
    lm = FunctionLM(lambda request: "no number")
    optimizer = BootstrapFewShot(right, max_errors=1)
    with pytest.raises(RunFailed, match="ParseError"):
        optimizer.compile(Predict("q -> a: int", lm=lm, reasks=0), examples(3))
    assert len(lm.requests) == 3


def test_nothing_is_spent_on_what_cannot_be_compiled():
    lm = ScriptedLM([])
    program = Predict("q -> a", lm=lm)
    for build, why in [
        (lambda: BootstrapFewShot(right).compile(lambda q: q, examples(1)), "there is no Predict in <lambda>"),
        (lambda: BootstrapFewShot(right).compile(program, []), "there are no examples"),
        (lambda: BootstrapFewShot(right).compile(program, [Example(x="1").with_inputs("x")]), "example 0: .*'q'"),
        (
            lambda: BootstrapFewShot(right).compile(program, examples(1), teacher=Two(lm)),
            "facts is in the teacher only",
        ),
        (
            lambda: BootstrapFewShot(right).compile(program, examples(1), teacher=Predict("q -> a: int", lm=lm)),
            "the Predict: q -> a and q -> a: int",
        ),
        (lambda: BootstrapFewShot(lambda example: True), "does not take .example, prediction."),
        (lambda: BootstrapFewShot(right, max_rounds=0), "max_rounds=0: give a whole number, 1 or more"),
        (lambda: BootstrapFewShot(right, seed="x"), "seed='x'"),
    ]:
        with pytest.raises(InputError, match=why):
            build()
    assert lm.requests == []


def test_demos_of_the_students_own_stay_where_nothing_was_learned():
    program = Predict("q -> a", lm=FunctionLM(lambda request: "no"))
    program.demos = [{"q": "old", "a": "OLD"}]
    assert [demo.q for demo in BootstrapFewShot(right).compile(program, examples(1)).demos] == ["old"]
    program.lm = learner(0)
    assert [demo.q for demo in BootstrapFewShot(right).compile(program, examples(1)).demos] == ["word0"]


def test_compiling_again_buys_nothing_and_learns_the_same(tmp_path):
    lm = learner()

    def compiled(lm, store):
        program = Predict("q -> a", lm=lm)
        optimizer = BootstrapFewShot(right, store=store, max_bootstrapped_demos=2, budget=Budget(calls=9))
        made = optimizer.compile(program, examples(4), teacher=Refine(program, checks=[loud], fix=False))
        return made.demos, optimizer.report.usage, [one.run_id for one in optimizer.report.tried]

    with SqliteStore(tmp_path / "runs.db") as store:
        first = compiled(lm, store)
    with SqliteStore(tmp_path / "runs.db") as store:
        assert compiled(ScriptedLM([], name=lm.name), store) == first
    assert first[1].calls == 4


def test_a_compilation_that_died_goes_on_where_it_was():
    store = MemoryStore()
    whole = learner()

    def dies(request):
        if len(lm.requests) > 3:
            raise KeyboardInterrupt
        return whole._fn(request)

    lm = FunctionLM(dies, name="x")

    def compiled(lm):
        program = Predict("q -> a", lm=lm)
        optimizer = BootstrapFewShot(right, store=store, budget=Budget(calls=8))
        made = optimizer.compile(program, examples(4), teacher=Refine(program, checks=[loud], fix=False))
        return made, optimizer.report

    with pytest.raises(KeyboardInterrupt):
        compiled(lm)
    rest = FunctionLM(whole._fn, name="x")
    made, report = compiled(rest)
    assert [demo.a for demo in made.demos] == ["WORD0", "WORD1", "WORD2", "WORD3"][: len(made.demos)]
    assert report.usage.calls <= 8
    assert len(rest.requests) <= 8 - 3


def test_what_is_learned_does_not_depend_on_how_many_work_at_once():
    async def answer(request):
        word = re.findall(r"word\d+", request.messages[-1]["content"])[-1]
        await asyncio.sleep(0.002 * (9 - int(word[4:])))
        return word.upper() if int(word[4:]) % 2 else "no"

    learned = [
        BootstrapFewShot(right, concurrency=n, max_bootstrapped_demos=3)
        .compile(Predict("q -> a", lm=FunctionLM(answer)), examples(9))
        .demos
        for n in (1, 4, 9)
    ]
    assert [demo.q for demo in learned[0]] == ["word1", "word3", "word5"]
    assert learned[0] == learned[1] == learned[2]


def test_of_a_predictor_asked_in_a_loop_one_answer_is_drawn_by_the_seed():
    class Loop(Module):
        def __init__(self, lm):
            self.say = Predict("q -> a", lm=lm)

        def forward(self, q):
            return max((self.say(q=f"{q}{i}") for i in range(6)), key=lambda said: said.a)

    def drawn(seed):
        optimizer = BootstrapFewShot(lambda e, p: True, seed=seed)
        (demo,) = optimizer.compile(Loop(learner(0)), examples(1)).say.demos
        return demo.q

    assert drawn(1) == drawn(1)
    assert len({drawn(seed) for seed in range(8)}) > 1


def test_a_transient_failure_is_retried_as_in_any_run():
    program = Predict("q -> a", lm=ScriptedLM([TransientLMError("busy", sent=True, retry_after=0.001), "WORD0"]))
    assert len(BootstrapFewShot(right).compile(program, examples(1)).demos) == 1


async def test_on_an_event_loop():
    optimizer = BootstrapFewShot(right)
    compiled = await optimizer.acompile(Predict("q -> a", lm=learner(0)), examples(2))
    assert len(compiled.demos) == 2
    assert optimizer.report.to_dict()["learned"] == 2


def test_two_compilations_at_once_on_one_store_share_what_was_bought():
    async def answer(request):
        await asyncio.sleep(0.001)
        return re.findall(r"word\d+", request.messages[-1]["content"])[-1].upper()

    async def both(store):
        program = Predict("q -> a", lm=lm)
        return await asyncio.gather(
            *[BootstrapFewShot(right, store=store).acompile(program, examples(3)) for _ in "ab"]
        )

    lm = FunctionLM(answer)
    one, other = asyncio.run(both(MemoryStore()))
    assert [demo.q for demo in one.demos] == ["word0", "word1", "word2"]
    assert one.demos == other.demos
    assert len(lm.requests) == 3


async def test_waiting_for_another_compilation_ends_with_the_time():
    store, lm = MemoryStore(), learner(0)
    first = BootstrapFewShot(right, store=store)
    await first.acompile(Predict("q -> a", lm=lm), examples(1))
    held = Run(store=store, run_id=first.report.tried[0].run_id)
    async with held:
        assert held.seed is not None  # begun: it holds the run
        late = BootstrapFewShot(right, store=store, budget=Budget(seconds=0.01))
        compiled = await late.acompile(Predict("q -> a", lm=lm), examples(1))
    assert (compiled.demos, late.report.stopped.limit) == ((), "seconds")
    assert late.report.reasons == {"cut off by the budget": 1}


Pair = namedtuple("Pair", "say")  # noqa: PYI024


class Holder:
    """No Module: an object that modules are found in."""

    def __init__(self, say):
        self.say = say

    async def acall(self, **inputs):
        return await self.say.acall(**inputs)


@pytest.mark.parametrize("held", [Pair, lambda say: OrderedDict(say=say), Holder])
def test_the_student_is_as_it_was_whatever_holds_its_predictors(held):
    class Program(Module):
        def __init__(self):
            self.held = held(Predict("q -> a", lm=learner(0)))

        def predictor(self):
            return self.held["say"] if isinstance(self.held, dict) else self.held.say

        async def aforward(self, q):
            return await self.predictor().acall(q=q)

    student = Program()
    compiled = BootstrapFewShot(right).compile(student, examples(1))
    assert (len(compiled.predictor().demos), student.predictor().demos) == (1, ())
    assert type(compiled.held) is type(student.held)


def test_a_metric_that_changes_what_it_is_given_changes_no_demo():
    def empties(example, prediction, trace):
        trace[0][1].clear()
        prediction.a.clear()
        return True

    program = Predict("q -> a: list[str]", lm=ScriptedLM(['["b", "a"]']))
    (demo,) = BootstrapFewShot(empties).compile(program, examples(1)).demos
    assert demo.to_dict() == {"q": "word0", "a": ["b", "a"]}


@pytest.mark.parametrize("bar", [float("nan"), float("inf"), True, "0.5"])
def test_a_threshold_that_nothing_could_be_held_against_is_refused(bar):
    with pytest.raises(InputError, match=r"metric_threshold=.*: give a finite number"):
        BootstrapFewShot(right, metric_threshold=bar)
