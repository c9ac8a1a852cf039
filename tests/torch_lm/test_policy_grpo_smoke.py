"""Two steps of GRPO with PASR's rewards on a tiny random model: the recipe runs, and the weights move. No claim about learning."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="left out: make test-torch runs what needs torch")
pytest.importorskip("trl", reason="left out: needs the extra train (make test-torch installs it)")

from redraft.budget import Budget  # noqa: E402
from redraft.errors import BudgetExceeded, ConfigError, InputError  # noqa: E402
from redraft.proactive.pasr import ColumnBaseline, SampledBaseline  # noqa: E402
from redraft.proactive.pasr.grading import Grader, judge_reward, reference_reward  # noqa: E402
from redraft.proactive.pasr.recipe import PAPER, train_pasr  # noqa: E402
from redraft.testing import FunctionLM  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

ROWS = [{"question": f"{i} + 1?", "answer": str(i + 1), "baseline": 0.25} for i in range(4)]
SMALL = {
    "max_completion_length": 12,
    "max_steps": 2,
    "learning_rate": 1e-3,
    "use_cpu": True,
    "save_strategy": "no",
}


def even(args, pred):
    """A verdict that a random model's texts get now and then."""
    return float(len(pred.answer) % 2 == 0)


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    """The tiny model as a folder: GRPO reads it twice, to train and to keep for comparison."""
    path = tmp_path_factory.mktemp("tiny")
    tiny.session.model.save_pretrained(path)
    tiny.tokenizer.save_pretrained(path)
    return path


@pytest.mark.parametrize("kind", ["live", "column"])
def test_two_steps_run_and_are_on_record(folder, kind, tmp_path):
    made, seen = [], []

    def baseline(write):
        made.append(SampledBaseline(write, n=4) if kind == "live" else ColumnBaseline())
        return made[-1]

    grader = Grader(reward=even)
    trainer = train_pasr(folder, ROWS, tmp_path, grader=grader, baseline=baseline, settings=SMALL, on_log=seen.append)
    assert trainer.state.global_step == 2
    steps = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert len(steps) == len(seen) == 3
    for step in steps[:2]:
        assert step["rewards/format/mean"] == -1.0, "a random model writes no tags"
        assert step["rewards/accuracy/mean"] == 0.0
        assert step["rewards/refinement/mean"] == 0.0
        assert step["pasr/well_formed"] == 0.0
        assert step["pasr/unjudged"] == 0.0
    if kind == "live":
        assert grader.judged > 0, "plain answers were written and judged"
        assert [step["pasr/baseline_age"] for step in steps[:2]] == [0.0, 0.0]
    else:
        assert [step["pasr/baseline"] for step in steps[:2]] == [0.25, 0.25]
        assert [step["pasr/baseline_age"] for step in steps[:2]] == [0.0, 1.0]
    told = json.loads((tmp_path / "pasr.json").read_text())
    assert told["settings"]["beta"] == PAPER["beta"] == 0.04
    assert (tmp_path / "model.safetensors").is_file()


@pytest.fixture(scope="module")
def talkative(tmp_path_factory):
    """A random model whose vocabulary is the tags and two digits: it writes what holds the form now and then."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    from redraft.proactive.pasr.tags import TAGS

    torch.manual_seed(3)
    vocab = {word: i for i, word in enumerate([*TAGS, "1", "2", "<unk>", "<end>"])}
    inner = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("</?[a-z]+>|."), "isolated")
    inner.decoder = decoders.Fuse()
    path = tmp_path_factory.mktemp("talkative")
    PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", unk_token="<unk>").save_pretrained(path)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=10, num_key_value_heads=2, eos_token_id=9, bos_token_id=None, **sizes)
    LlamaForCausalLM(config).save_pretrained(path)
    return path


def test_rewards_differ_and_the_weights_move(talkative, tmp_path):
    from transformers import AutoModelForCausalLM

    before = AutoModelForCausalLM.from_pretrained(talkative)
    trainer = train_pasr(
        talkative,
        [{"question": "1 or 2?", "answer": "1"}] * 4,
        tmp_path,
        grader=Grader(reward=reference_reward),
        settings={**SMALL, "num_generations": 32, "per_device_train_batch_size": 32, "gradient_accumulation_steps": 1},
    )
    first = trainer.state.log_history[0]
    assert first["reward_std"] > 0
    assert first["rewards/accuracy/mean"] > 0
    assert first["pasr/refines"] > 0
    assert first["grad_norm"] > 0
    moved = zip(before.parameters(), trainer.model.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in moved)


def test_a_budget_that_ends_leaves_the_model(talkative, tmp_path):
    judge = FunctionLM(lambda request: '{"verdict": "5", "hint": ""}')
    with pytest.raises(BudgetExceeded):
        train_pasr(
            talkative,
            [{"question": "1 or 2?", "answer": "1"}] * 4,
            tmp_path,
            grader=Grader(reward=judge_reward(judge), budget=Budget(calls=1)),
            settings=SMALL,
        )
    assert (tmp_path / "model.safetensors").is_file()


def test_the_command_line_trains(talkative, tmp_path):
    from click.testing import CliRunner

    from redraft.cli.app import main

    data, out = tmp_path / "rows.jsonl", tmp_path / "trained"
    data.write_text('{"question": "1 or 2?", "answer": "1"}\n' * 2, encoding="utf-8")
    asked = ["train", "pasr", "-m", str(talkative), "--data", str(data), "-o", str(out), "--steps", "1", "--plain", "2"]
    sets = [f"--set={name}={value}" for name, value in {"max_completion_length": 8, "use_cpu": "true"}.items()]
    said = CliRunner().invoke(main, [*asked, *sets])
    assert said.exit_code == 0, said.output
    assert said.stdout == f"{out}\n"
    assert "step 1  reward " in said.stderr
    assert (out / "model.safetensors").is_file()


def test_what_cannot_be_used_is_said_before_anything_is_loaded(folder, tmp_path):
    grader = Grader(reward=even)
    with pytest.raises(InputError, match="no 'question'"):
        train_pasr(folder, [{"answer": "1"}], tmp_path, grader=grader)
    with pytest.raises(InputError, match="row 2 has the columns question"):
        train_pasr(folder, [ROWS[0], {"question": "x"}], tmp_path, grader=grader)
    with pytest.raises(ConfigError, match="no 'betta'"):
        train_pasr(folder, ROWS, tmp_path, grader=grader, settings={"betta": 1})
