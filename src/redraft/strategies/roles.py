"""Who writes, who criticises, who revises: personas, models and temperatures as modules."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from redraft.config import resolve_lm
from redraft.errors import InputError
from redraft.frame import current_frame
from redraft.judges import Critic, Majority, Pairwise, persona_text
from redraft.modules import Module, Predict, ReAct
from redraft.modules.wire import TOOL_CALLS
from redraft.protocols import LM
from redraft.registry import split_model
from redraft.signature import Field, SignatureSpec
from redraft.strategies.advisor import Advisor, own_lm
from redraft.types import APART, Issue, Prediction


@dataclass(frozen=True)
class Role:
    """A persona, a model, or both: `Role("senior editor", lm="openai/gpt-4.1", temperature=0.2)`."""

    persona: str = ""
    lm: LM | str | None = None
    temperature: float | None = None

    @property
    def system(self) -> str:
        """The persona as a system prompt."""
        return persona_text(self.persona)


def as_role(thing: Any) -> Role | None:
    """A text is a persona, or a model if it says `provider/model` of a known provider; an LM is a model."""
    if thing is None:
        return Role()
    if isinstance(thing, Role):
        return thing
    if isinstance(thing, str):
        is_model = not any(c.isspace() for c in thing) and split_model(thing)[0] is not None
        return Role(lm=thing) if is_model else Role(persona=thing)
    return Role(lm=thing) if isinstance(thing, LM) else None


def resolved(who: str | None, lm: LM | str | None, base_url: str | None = None) -> Role | None:
    """A persona on the author's model, or a model of its own (OpenAI's at `base_url`), resolved now so that a missing key is
    known at once; None for nobody.
    """
    role = as_role(who) if who else None
    if role is None or role.lm is None:
        return role and replace(role, lm=lm)
    elsewhere = not isinstance(role.lm, str) or split_model(role.lm)[0] not in (None, "openai")
    return replace(role, lm=resolve_lm(role.lm, None if elsewhere else base_url))


def as_critic(thing: Any, lm: LM | str | None, criteria: Sequence[str] | str = ()) -> Any:
    """A critic module or function from whatever names one; `lm` is the model where the role has none."""
    role = as_role(thing)
    if role is not None:
        return Critic(role.persona, criteria=criteria, lm=role.lm or lm, temperature=role.temperature)
    if callable(thing) or hasattr(thing, "acall"):
        return thing
    raise InputError(f"critic={thing!r}: give a persona, a model, a Role, a Critic, a function or a module")


def as_reviser(thing: Any, author: Any) -> Any:
    """A reviser module from whatever names one."""
    role = as_role(thing)
    if role is not None:
        return Reviser(author, role)
    if callable(thing) or hasattr(thing, "acall"):
        return thing
    raise InputError(
        f"reviser={thing!r}: give a persona, a model, a Role, or a module called with draft, issues, keep, task"
    )


def as_judge(thing: Any, lm: LM | str | None) -> Any:
    """A judge of two drafts from whatever names one; `lm` is the model where the role has none."""
    role = as_role(thing)
    if role is not None:
        return Pairwise(role.lm or lm, persona=role.persona, temperature=role.temperature or 0.0)
    if callable(thing) or hasattr(thing, "acall"):
        return thing
    raise InputError(
        f"judge={thing!r}: give a model, a persona, a Role, or a function (task, challenger, incumbent) -> bool"
    )


def as_advisor(thing: Any, lm: LM | str | None) -> Any:
    """An advisor from whatever names one; None for False."""
    role = None if thing is False else as_role(thing)
    if role is not None:
        return Advisor(role.lm or lm, persona=role.persona)
    if thing is False or hasattr(thing, "acall"):
        return thing or None
    raise InputError(
        f"advisor={thing!r}: give a model, a persona, a Role, False for nobody, or a module called with attempt, score, "
        "scored_by and task that outputs advice"
    )


def as_picker(thing: Any, lm: LM | str | None) -> Any:
    """A judge of many drafts from whatever names one; `lm` is the model where the role has none. "majority" asks nobody."""
    role = as_role(thing)
    if role is not None and role.persona.strip().casefold() == "majority":
        return Majority()
    if role is not None:
        from redraft.judges.listwise import BestOfList

        return BestOfList(role.lm or lm, persona=role.persona)
    if callable(thing) or hasattr(thing, "acall"):
        return thing
    raise InputError(
        f"judge={thing!r}: give a model, a persona, a Role, or a function (task, drafts) -> index of the best"
    )


class Reviser(Module):
    """Rewrites a draft. Inputs: `draft`, `issues`, `keep`, and the author's own inputs, which come last in the prompt:
    the task restated at the end, images untouched. Outputs: the author's.
    """

    def __init__(self, author: Any, role: Role, outputs: Sequence[str] = ("answer",)) -> None:
        self.author = getattr(author, "signature", None)
        self.outputs = tuple(outputs)
        """What it writes where the author has no signature: a program, a function."""
        self.role = role
        self.lm = role.lm or own_lm(author)
        own = author if isinstance(author, Predict | ReAct) else None
        # Where the role does not say, the author's own settings hold for its revisions, too.
        self.system = role.system or (own.system if own else "")
        self.temperature = role.temperature if role.temperature is not None or own is None else own.temperature
        self.max_tokens = own.max_tokens if own else None
        self.sampling = dict(own.sampling) if own else {}
        """The tools among them: calls are revised by calling anew."""

    def writing(self, draft: Prediction | None) -> Reviser:
        """The same reviser for an author without a signature, whose outputs only a draft of it shows."""
        if self.author is not None or draft is None:
            return self
        twin = copy(self)
        twin.outputs = tuple(name for name in draft if name not in APART) or self.outputs
        return twin

    async def aforward(self, **inputs: Any) -> Prediction:
        """See the class."""
        frame = current_frame()
        assert frame is not None
        parts = {name: inputs.pop(name) for name in ("draft", "issues", "keep")}
        author = self.author if self.author and self.author.inputs.keys() >= inputs.keys() else None
        fields = [Field("draft"), Field("issues", str, "change these"), Field("keep", str, "leave these as they are")]
        if not parts["keep"]:
            parts.pop("keep")
            fields.pop()
        own = author.inputs.values() if author else [Field(name, type(v)) for name, v in inputs.items()]
        outputs = self.author.outputs.values() if self.author else [Field(name) for name in self.outputs]
        spec = SignatureSpec((*fields, *own), outputs)
        asked = CALLS if [*spec.outputs] == [TOOL_CALLS] else INSTRUCTIONS
        spec = spec.with_instructions("\n\n".join(filter(None, (asked, author.instructions if author else ""))))
        revise = Predict(
            spec,
            lm=self.lm,
            system=self.system,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            role="reviser",
            **self.sampling,
        )
        return await revise.acall(**parts, **inputs)  # type: ignore[no-any-return]


def listed(issues: Sequence[Issue]) -> str:
    """Issues as lines a model can act on."""
    return "\n".join(
        f"- {f'({i.location}) ' if i.location else ''}{i.problem}{f' -> {i.suggestion}' if i.suggestion else ''}"
        for i in issues
    )


INSTRUCTIONS = (
    "Revise the draft: fix the issues and change nothing else. Answer with the whole revised text alone, "
    "without comments."
)

CALLS = "Revise the draft, which is a list of tool calls: fix the issues and change nothing else. Make all of its calls anew."
