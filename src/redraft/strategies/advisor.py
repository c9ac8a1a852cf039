"""Advice where a reward function only gave a number: a model is told the task, the attempt, the score and what the reward
function says of itself, and answers with a short hint; for a program of several modules, with one for each, by path.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from redraft.errors import BudgetExceeded, RedraftError, RunClosed, ScoreError, StoreError
from redraft.judges import persona_text
from redraft.judges.asking import bounded
from redraft.modules import Module, Predict
from redraft.modules.wire import restate
from redraft.protocols import LM
from redraft.run import Run
from redraft.scoring import as_prediction, name_of
from redraft.signature import as_signature
from redraft.strategies.ladder import last_reply
from redraft.types import Attempt, Inputs

if TYPE_CHECKING:
    from redraft.strategies.base import Refining

_LONGEST = 400
_CODE = 4000


class Advisor(Module):
    """Says how the next attempt can score higher. Output `advice`: a text, or texts by module path."""

    def __init__(self, lm: LM | str | None = None, *, persona: str = "", max_tokens: int = 300) -> None:
        self.lm, self.persona = lm, persona
        """Without a model of its own it asks the one that wrote the attempt."""
        options: dict[str, Any] = {
            "lm": lm,
            "system": persona_text(persona),
            "max_tokens": max_tokens,
            "reasks": 1,
            "role": "advisor",
        }
        self.one = Predict(as_signature(ONE, INSTRUCTIONS), **options)
        self.each = Predict(as_signature(EACH, f"{INSTRUCTIONS} {BY_PATH}"), **options)

    async def aforward(self, **inputs: Any) -> Any:
        """Inputs: `attempt`, `score`, `scored_by`, `task`; and `modules`, where there are several."""
        return await self.predictor(inputs).acall(**inputs)

    def predictor(self, inputs: Mapping[str, Any]) -> Predict:
        """The one that fits these inputs."""
        return self.each if "modules" in inputs else self.one


async def advise(advisor: Any, strategy: Refining, run: Run, inputs: Inputs, tried: Attempt) -> dict[str, str]:
    """Hints by path inside the strategy's module ("" is the whole). An advisor that fails costs a hint, never an attempt."""
    module, reward, wanted = strategy.module, strategy.judgement.reward, strategy.threshold
    if isinstance(advisor, Advisor) and advisor.lm is None:
        if (lm := author_of(run, tried)) is None:
            return {}
        advisor = Advisor(lm, persona=advisor.persona)
    assert tried.score is not None
    assert reward is not None
    paths = modules_in(module)
    given = {
        "attempt": tried.text,
        "score": f"{tried.score.value:g}" + (f", wanted: {wanted:g}" if wanted is not None else ""),
        "scored_by": said_of(reward),
        "task": restate(inputs, instructions_of(module), ""),
    }
    if len(paths) > 1:
        wrote = outputs_of(run, tried)
        given["modules"] = "\n".join(f"{path}: {what}{wrote.get(path, '')}" for path, what in paths.items())
    try:
        asked = advisor.predictor(given) if isinstance(advisor, Advisor) else advisor
        said = as_prediction(await run.judging(advisor, asked.acall(**given)))
        if "advice" not in said:
            raise ScoreError(f"{name_of(advisor)} returned {', '.join(said)}; an advisor returns `advice`")
    except (BudgetExceeded, RunClosed, StoreError):
        raise
    except RedraftError as error:
        run.journal.remark("advisor_error", scope=run.scope, error=str(error))
        return {}
    return _by_path(run, said["advice"], paths)


def _by_path(run: Run, advice: Any, paths: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(advice, Mapping):
        return {} if _is_nothing(advice) else {"": bounded(str(advice), _LONGEST)}
    hints: dict[str, str] = {}
    for said, text in advice.items():
        if _is_nothing(text):
            continue
        close = difflib.get_close_matches(str(said), paths, n=1, cutoff=0.6)
        if not close:  # advice for nobody is still advice: everybody hears it
            run.journal.remark("advice_unaddressed", scope=run.scope, path=str(said), known=list(paths))
        path = close[0] if close else ""
        hints[path] = "\n".join(filter(None, (hints.get(path, ""), bounded(str(text), _LONGEST))))
    return hints


def _is_nothing(text: Any) -> bool:
    return text is None or str(text).strip().upper() in ("", "N/A", "NONE")


def modules_in(module: Any) -> dict[str, str]:
    """The predictors inside a program, by path: what each turns into what."""
    if isinstance(module, Predict):
        return {"": str(module.signature)}
    inside = module.named_modules() if hasattr(module, "named_modules") else ()
    return {path: str(m.signature) for path, m in inside if isinstance(m, Predict)}


def instructions_of(module: Any) -> str:
    """What the module was told to do; for a program, nothing."""
    signature = getattr(module, "signature", None)
    return str(signature.instructions) if signature is not None else ""


def own_lm(module: Any) -> Any:
    """The model that a module uses: its own, or its first predictor's; None if it has none of its own."""
    if (lm := getattr(module, "lm", None)) is not None:
        return lm
    inside = module.named_modules() if hasattr(module, "named_modules") else ()
    return next((lm for _, m in inside if (lm := getattr(m, "lm", None)) is not None), None)


def outputs_of(run: Run, tried: Attempt) -> dict[str, str]:
    """What each module inside wrote in an attempt, by path, as a part of a sentence."""
    scope = f"{run.scope}/attempt[{tried.index}]/"
    wrote: dict[str, str] = {}
    for event in run.journal.calls(scope[:-1]):
        places = [part.partition(":")[0] for part in event.scope.removeprefix(scope).split("/")]
        text = bounded(event.data["completion"]["choices"][0].get("text", ""), _LONGEST)
        wrote.setdefault(".".join(places[1:]), f", wrote: {text}")
    return wrote


def author_of(run: Run, tried: Attempt) -> LM | None:
    """The model that wrote an attempt; None if it asked none."""
    reply = last_reply(run, tried)
    return None if reply is None else run.models.get(reply.data["model"])


def said_of(reward: Callable[..., Any]) -> str:
    """What a reward function says of itself: its source, else its docstring, else its name. Code typed into a REPL,
    callables and compiled functions have no source to read: that is no error.
    """
    try:
        return _said_of(reward)
    except TypeError:  # it cannot be hashed
        return _said_of.__wrapped__(reward)


@lru_cache(maxsize=256)
def _said_of(reward: Callable[..., Any]) -> str:
    while isinstance(reward, partial):
        reward = reward.func
    target = reward if inspect.isroutine(reward) or inspect.isclass(reward) else type(reward)
    try:
        source = textwrap.dedent(inspect.getsource(target))[:_CODE]
    except (OSError, TypeError):
        return inspect.getdoc(reward) or name_of(reward)
    return source if name_of(target) != "<lambda>" else _lambda_in(source)


def _lambda_in(source: str) -> str:
    """The lambda alone: the line that it stands in is nobody's business."""
    try:
        found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Lambda)]
    except SyntaxError:  # the line is a part of a statement
        found = []
    return (ast.get_source_segment(source, found[0]) or "") if len(found) == 1 else "a lambda"


ONE = "attempt, score, scored_by, task -> advice"
EACH = "attempt, score, scored_by, modules, task -> advice: dict[str, str]"
INSTRUCTIONS = (
    "An attempt at the task was scored by code (higher is better). Say in one or two sentences what the next attempt, "
    "which will not see this one, should do to score higher. Do not write the answer itself."
)
BY_PATH = "Give this advice to each module by its path, and leave out those that did nothing wrong."
