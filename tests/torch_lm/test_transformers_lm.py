"""Proactive decoding on a transformers model: as an LM in a Run, and as `generate(custom_generate=...)`."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="left out: make test-torch runs what needs torch")

from redraft import Predict, Run, checks  # noqa: E402
from redraft.errors import ConfigError, UnsupportedError  # noqa: E402
from redraft.proactive import DynamicBacktracker, ProactiveDecoder, RandomSignal, RefinementSignal  # noqa: E402
from redraft.proactive.torch_lm import proactive_generate  # noqa: E402
from redraft.types import Request  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

TASK = "Write one sentence about a cat."


class Stubborn(DynamicBacktracker):
    """Writes alternatives, and takes none."""

    def select_best_alternative(self, tails, verified, texts):
        from redraft.proactive.backtrack import Selected

        return Selected(at=0, why="rejected", consistency=1.0)


def generated(lm, ids, **options):
    asked = torch.tensor([ids])
    whole = lm.session.model.generate(
        asked, attention_mask=torch.ones_like(asked), max_new_tokens=24, pad_token_id=0, **options
    )
    return whole[0].tolist()[len(ids) :]


def prompt(lm):
    return lm.prompt(Request(messages=({"role": "user", "content": TASK},)))


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("model", ["tiny", "smollm"])
def test_where_nothing_triggers_it_is_generate_token_for_token(model, sample, request):
    lm = request.getfixturevalue(model)
    ids = prompt(lm)
    torch.manual_seed(1)
    plain = generated(lm, ids, do_sample=sample)
    torch.manual_seed(1)
    assert generated(lm, ids, do_sample=sample, custom_generate=proactive_generate(lm.tokenizer)) == plain


@pytest.mark.parametrize("rate", [0.2, 1.0])
@pytest.mark.parametrize("model", ["tiny", "smollm"])
def test_where_everything_is_rejected_it_is_generate_token_for_token(model, rate, request):
    lm = request.getfixturevalue(model)
    ids, seen = prompt(lm), []
    function = proactive_generate(
        lm.tokenizer, signal=RandomSignal(rate), back=Stubborn(reach=(1, 9), gap=3), on_rewind=seen.append
    )
    assert generated(lm, ids, do_sample=False, custom_generate=function) == generated(lm, ids, do_sample=False)
    assert seen
    assert not any(rewind.accepted for rewind in seen)


def test_custom_generate_repairs_what_a_guard_forbids(smollm):
    ids, seen = prompt(smollm), []
    plain = smollm.tokenizer.decode(generated(smollm, ids, do_sample=False))
    word = next(w.strip(".,") for w in plain.split()[2:] if len(w) > 3)
    function = proactive_generate(
        smollm.tokenizer, guard=lambda text: "forbids" if word in text else "", on_rewind=seen.append
    )
    text = smollm.tokenizer.decode(generated(smollm, ids, do_sample=False, custom_generate=function))
    assert word in plain
    assert word not in text
    assert seen[0].cause == "guard"


def test_custom_generate_takes_one_text_at_a_time(tiny):
    two = torch.tensor([[65, 66], [67, 68]])
    with pytest.raises(ConfigError, match="a batch of 2"):
        tiny.session.model.generate(
            two,
            attention_mask=torch.ones_like(two),
            max_new_tokens=4,
            pad_token_id=0,
            custom_generate=proactive_generate(tiny.tokenizer),
        )


def test_in_a_run_the_text_is_the_plain_one_and_every_token_is_charged(tiny):
    plain = Predict("task -> answer", lm=tiny, temperature=0.0, max_tokens=30)(task=TASK).answer
    author = Predict("task -> answer", lm=tiny, temperature=0.0, max_tokens=30)
    result = ProactiveDecoder(author, signal=RandomSignal(1.0), back=Stubborn(reach=(1, 9), gap=5))(task=TASK)
    assert result.answer == plain
    spent = next(e.data["tokens"] for e in result.events if e.kind == "decoded")
    assert result.usage.output_tokens == sum(spent.values())
    assert spent["signal"] > spent["text"]
    assert result.usage.exact
    assert result.usage.cached_tokens > 0


def test_in_a_run_a_guard_takes_back(smollm):
    author = Predict("task -> answer", lm=smollm, temperature=0.0, max_tokens=40)
    plain = author(task=TASK).answer
    word = next(w.strip(".,") for w in plain.split()[2:] if len(w) > 3)
    result = ProactiveDecoder(author, checks=[checks.forbids(word)])(task=TASK)
    assert word not in result.answer
    assert [e for e in result.events if e.kind == "rewind"]


def test_the_whole_entropy_is_a_signal_here(tiny):
    author = Predict("task -> answer", lm=tiny, temperature=0.0, max_tokens=30)
    signal = RefinementSignal("entropy", 0.5, window=2)
    result = ProactiveDecoder(author, signal=signal, back=DynamicBacktracker(reach=(1, 9), most=3, floor=0.001))(
        task=TASK
    )
    assert [e for e in result.events if e.kind == "rewind" and e.data["cause"] == "signal"]


async def test_what_it_does_not_take_is_refused_by_name(tiny):
    with pytest.raises(UnsupportedError, match="top_p"):
        await tiny.generate(Request(messages=({"role": "user", "content": "x"},), top_p=0.5))


async def test_a_call_that_is_cancelled_leaves_the_model_free(tiny):
    import asyncio

    seen = asyncio.Event()
    task = asyncio.ensure_future(
        tiny.generate(Request(messages=({"role": "user", "content": "x"},), max_tokens=200), lambda _: seen.set())
    )
    await seen.wait()
    task.cancel()
    await asyncio.wait({task})
    async with Run() as run:
        reply = await run.complete(Request(messages=({"role": "user", "content": "y"},), max_tokens=2), lm=tiny)
    assert len(reply.logprobs) <= 2


def test_seeds_make_samples_the_same_again(tiny):
    author = Predict("task -> answer", lm=tiny, temperature=1.0, max_tokens=20)

    def text(seed):
        with Run(seed=seed):
            return author(task=TASK).answer

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(4)}) > 1
