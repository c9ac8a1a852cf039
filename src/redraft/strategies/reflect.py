"""Generate-reflect-refine with personas: a writer drafts, an editor notes what falls short, the writer revises."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from redraft.errors import InputError
from redraft.modules import Predict, ReAct
from redraft.strategies.advisor import own_lm
from redraft.strategies.base import as_module
from redraft.strategies.roles import Role, as_critic, as_role
from redraft.strategies.self_refine import SelfRefine


class Reflect(SelfRefine):
    """Self-Refine's loop between a writer and an editor.

    `Reflect("Review La Maison", editor="senior food critic", criteria=["sensory detail", "balanced tone"], rounds=1)`.
    `module` is the task as text, a signature, or a module; `writer` and `editor` are personas, models or Roles; the
    editor may also be a function or module. Further options are SelfRefine's.
    """

    def __init__(
        self,
        module: Any = "task -> answer",
        writer: Any = None,
        editor: Any = "senior editor",
        criteria: Sequence[str] | str = (),
        rounds: int = 1,
        **options: Any,
    ) -> None:
        role = as_role(writer)
        if role is None:
            raise InputError(f"writer={writer!r}: give a persona, a model or a Role")
        author = _written_by(role, module) if writer else as_module(module)
        critic = as_critic(editor, own_lm(author), criteria)
        # The author writes in the writer's persona, and a reviser takes over its author's settings.
        super().__init__(author, critic=critic, rounds=rounds, **options)


def _written_by(writer: Role, module: Any) -> Predict | ReAct:
    """The author in the writer's persona, on its model."""
    author = as_module(module)
    if not isinstance(author, Predict | ReAct):
        raise InputError(
            f"writer={writer!r} with {author!r}: give the task, a signature, a Predict or a ReAct to be written so"
        )
    author = copy(author)
    author.lm = writer.lm or author.lm
    author.system = "\n\n".join(filter(None, (writer.system, author.system)))
    author.temperature = author.temperature if writer.temperature is None else writer.temperature
    return author
