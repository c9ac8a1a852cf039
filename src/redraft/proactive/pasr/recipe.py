"""GRPO with the three rewards of PASR on TRL: `redraft train pasr`. Needs the extra `train`.

What TRL and Accelerate do is not rebuilt here: many GPUs are `accelerate launch -m redraft train pasr ...`, fast sampling is
`trl vllm-serve` and `use_vllm`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from redraft.errors import BudgetExceeded, ConfigError, InputError
from redraft.proactive.pasr.baseline import BaselineProvider, SampledBaseline, Writer, question_of
from redraft.proactive.pasr.grading import Grader, Row
from redraft.proactive.pasr.rewards import PasrRewards

PAPER: dict[str, Any] = {
    "num_generations": 8,
    "temperature": 0.9,
    "max_completion_length": 1500,
    "learning_rate": 1e-6,
    "beta": 0.04,
    "epsilon": 0.2,
    "scale_rewards": "group",
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "max_steps": 3000,
}
"""The values of arXiv 2508.12903 and its published configuration, by their names in TRL's GRPOConfig; 2 completions x 4 make up
one group a step and process. Eight plain answers a question come on top (`SampledBaseline`).
"""

OURS: dict[str, Any] = {
    "lr_scheduler_type": "constant",
    "loss_type": "grpo",
    "logging_steps": 1,
    "save_steps": 500,
    "report_to": "none",
    "disable_tqdm": True,
    "chat_template_kwargs": {"enable_thinking": False},
}
"""Choices of ours. The loss is the mean of each completion's mean, as in the paper's code, which favours short right answers and
long wrong ones (`loss_type="dr_grpo"` does not). A model's own thinking mode is off: the tags are plain text.
"""

SYSTEM = (
    "Think before you answer, and look again at what you have thought whenever it may be wrong or incomplete. Write your thoughts "
    "between <think> and </think>. Where you look again, in the midst of them, write what you correct or add between <refine> and "
    "</refine>; do so as often as it helps, or not at all. After </think> write the answer alone between <answer> and </answer>."
)
PLAIN = "Think step by step if it helps, and end with the answer."


def train_pasr(
    model: str | Path,
    rows: Sequence[Row],
    out: str | Path,
    *,
    grader: Grader,
    baseline: Callable[[Writer], BaselineProvider] = SampledBaseline,
    zeta: float = 0.0,
    settings: Mapping[str, Any] | None = None,
    on_log: Callable[[Mapping[str, Any]], None] | None = None,
) -> Any:
    """Train a model, a folder or a hub's name, on rows with a `question` and what `grader` judges by.

    `settings` are TRL's GRPOConfig's, over `PAPER` and `OURS`. Writes the model, `log.jsonl` (a line a logged step) and
    `pasr.json` (what it was trained with) into `out`. Returns TRL's trainer. Raises `ConfigError` without TRL or for a setting that
    TRL does not know, `InputError` for rows that cannot be used, `BudgetExceeded` where the judge's budget ends it, after the model
    was saved (but with several processes: use TRL's `save_steps`).
    """
    trl = _trl()
    columns = _columns(rows)
    tokenizer = _tokenizer(str(model))
    form = PromptForm(tokenizer)
    writer = PlainWriter(form)
    rewards = PasrRewards(grader, baseline(writer), zeta=zeta, opened=form.opened, columns=columns)
    chosen = {**OURS, "bf16": _takes_bf16(), **PAPER, **(settings or {})}
    trainer = trl.GRPOTrainer(
        model=str(model),
        reward_funcs=rewards.functions,
        args=_config(trl, out, chosen),
        train_dataset=_dataset(rows, form),
        processing_class=tokenizer,
    )
    writer.trainer = trainer
    log = _Log(Path(out), on_log)
    _tell_only(trainer, log.callback())
    _run(trainer, out)
    if trainer.accelerator.is_main_process:
        log.settings({"settings": chosen, "zeta": zeta, "baseline": type(rewards.baseline).__name__, "rows": len(rows)})
    return trainer


class PromptForm:
    """How questions are put to a model: with its chat template where it has one."""

    def __init__(self, tokenizer: Any) -> None:
        self.chat = bool(getattr(tokenizer, "chat_template", None))
        self.opened = self.chat and _rendered(tokenizer, self.trained("x")).rstrip().endswith("<think>")
        """The template ends in `<think>` itself."""

    def trained(self, question: str) -> Any:
        """The prompt that asks for tags."""
        return self._put(SYSTEM, question)

    def plain(self, question: str) -> Any:
        """The prompt of plain answers."""
        return self._put(PLAIN, question)

    def _put(self, system: str, question: str) -> Any:
        if self.chat:
            return [{"role": "system", "content": system}, {"role": "user", "content": question}]
        return f"{system}\n\nQuestion: {question}\n\n"


class PlainWriter:
    """Writes plain answers with a trainer's own sampling: the policy as it is now, by transformers or vLLM as the trainer does.

    TRL has no public way to sample for other prompts than those that are trained on: this asks two private methods of its trainer
    (1.16), and a test holds that they do what they did.
    """

    def __init__(self, form: PromptForm) -> None:
        self.form = form
        self.trainer: Any = None

    def __call__(self, questions: Sequence[str], n: int) -> list[list[str]]:
        """See `Writer`."""
        prompts = [self.form.plain(question) for question in questions for _ in range(n)]
        ids, *_ = self.trainer._tokenize_prompts(prompts)
        written, _ = self.trainer._generate_single_turn(ids, None, {}, n)
        texts = self.trainer.processing_class.batch_decode(written, skip_special_tokens=True)
        return [[_after_thoughts(text) for text in texts[i : i + n]] for i in range(0, len(texts), n)]


def _after_thoughts(text: str) -> str:
    return text.rpartition("</think>")[2].strip()


class _Log:
    """Writes what TRL logs to a file, and tells the caller."""

    def __init__(self, folder: Path, on_log: Callable[[Mapping[str, Any]], None] | None) -> None:
        self.folder, self.on_log = folder, on_log

    def callback(self) -> Any:
        """For the trainer."""
        from transformers import TrainerCallback

        outer = self

        class Logged(TrainerCallback):
            def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
                del args, control
                if state.is_world_process_zero and logs:
                    outer.line({"step": state.global_step, **logs})

        return Logged()

    def line(self, logs: Mapping[str, Any]) -> None:
        """One logged step."""
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(logs, default=float) + "\n")
        if self.on_log is not None:
            self.on_log(logs)

    def settings(self, known: Mapping[str, Any]) -> None:
        """What it was trained with."""
        from importlib.metadata import version

        versions = {name: version(name) for name in ("redraft", "trl", "transformers", "torch")}
        text = json.dumps({**known, "versions": versions}, indent=2, default=str)
        (self.folder / "pasr.json").write_text(text + "\n", encoding="utf-8")


def _run(trainer: Any, out: str | Path) -> None:
    try:
        trainer.train()
    except BudgetExceeded:  # the judge's: what was trained so far is kept
        if trainer.accelerator.num_processes == 1:
            trainer.save_model(str(out))
        raise
    trainer.save_model(str(out))


def _tell_only(trainer: Any, callback: Any) -> None:
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)  # it writes to stdout
    trainer.add_callback(callback)


def _trl() -> Any:
    try:
        import datasets  # noqa: F401 - the recipe's, too
        import trl
    except ImportError as error:
        raise ConfigError(f"training needs the extra `train`: pip install 'redraft[train]' ({error})") from error
    return trl


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
    except (OSError, ValueError) as error:
        raise ConfigError(f"there is no model {name!r} that transformers can load: {error}") from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _rendered(tokenizer: Any, messages: Any) -> str:
    more = OURS["chat_template_kwargs"]
    return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **more))


def _columns(rows: Sequence[Row]) -> list[str]:
    if not rows:
        raise InputError("there are no rows to train on")
    names = list(rows[0])
    for number, row in enumerate(rows, 1):
        question_of(row)
        if list(row) != names:
            raise InputError(f"row {number} has the columns {', '.join(row)}, the first one has {', '.join(names)}")
    if "prompt" in names:
        raise InputError("a column 'prompt' is made here, out of 'question': rename yours")
    return names


def _dataset(rows: Sequence[Row], form: PromptForm) -> Any:
    from datasets import Dataset

    return Dataset.from_list([{**row, "prompt": form.trained(question_of(row))} for row in rows])


def _config(trl: Any, out: str | Path, chosen: Mapping[str, Any]) -> Any:
    from dataclasses import fields

    known = {field.name for field in fields(trl.GRPOConfig)}
    if unknown := sorted(set(chosen) - known):
        raise ConfigError(f"TRL's GRPOConfig has no {unknown[0]!r}; it has {', '.join(sorted(known))}")
    return trl.GRPOConfig(output_dir=str(out), **chosen)


def _takes_bf16() -> bool:
    import torch

    return bool(torch.cuda.is_available() and torch.cuda.is_bf16_supported())
