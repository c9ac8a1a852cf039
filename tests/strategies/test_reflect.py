"""Reflect: a writer, an editor with criteria, a revision."""

from __future__ import annotations

import pytest

from redraft import Predict, Reflect, Role, context
from redraft.checks import sentences
from redraft.errors import InputError


def test_a_writer_and_an_editor_with_criteria(script, say):
    lm = script("Nice food.", say.found("no detail"), "Deep, sweet onion soup.", *say.wins)
    reflect = Reflect(
        "Review La Maison.",
        writer="young food blogger",
        editor="senior food critic",
        criteria=["sensory detail", "balanced tone"],
        rounds=1,
    )
    with context(model=lm):
        result = reflect()
    assert (result.answer, result.stop_reason, result.usage.calls) == ("Deep, sweet onion soup.", "rounds", 5)
    systems = [r.messages[0]["content"] for r in lm.requests]
    assert systems[0] == "You are a young food blogger."
    assert systems[1].startswith("You are a senior food critic.\n\n")
    assert systems[1].endswith("Judge by: sensory detail; balanced tone.")
    assert systems[2].startswith("You are a young food blogger.\n\nRevise the draft")
    assert say.asked(lm, 0) == "Review La Maison."
    assert "- no detail" in say.asked(lm, 2)


def test_the_editor_may_be_satisfied(script, say):
    lm = script("Deep soup.", say.ok)
    result = Reflect(Predict("topic -> review", lm=lm))(topic="soup")
    assert (result.review, result.stop_reason) == ("Deep soup.", "critic_ok")
    assert lm.requests[1].messages[0]["content"].startswith("You are a senior editor.")


def test_roles_with_models_and_temperatures(script, say):
    writer, editor = script("Nice.", "Deep."), script(say.found("dull"), *say.wins)
    result = Reflect(
        "topic -> review",
        writer=Role(persona="poet", lm=writer, temperature=0.9),
        editor=Role(persona="editor", lm=editor, temperature=0.2),
    )(topic="soup")
    assert result.review == "Deep."
    assert [r.temperature for r in writer.requests] == [0.9, 0.9]
    assert [r.temperature for r in editor.requests] == [0.2, 0.0, 0.0]


def test_an_editor_of_code(script):
    lm = script("Nice.", "Deep.")
    result = Reflect(
        Predict("topic -> review", lm=lm),
        editor=lambda text: None if text == "Deep." else "dull",
        judge=lambda **_: True,
    )(topic="soup")
    assert result.review == "Deep."


def test_checks_come_first_here_too(script):
    lm = script("Aa. Bb.", "Aa.")
    asked = []
    Reflect(Predict("topic -> review", lm=lm), editor=asked.append, checks=[sentences(1)], rounds=2)(topic="soup")
    assert asked == ["Aa."]


@pytest.mark.parametrize("writer", [5, lambda topic: "x"])
def test_a_writer_is_a_persona_a_model_or_a_role(writer):
    with pytest.raises(InputError, match="writer"):
        Reflect("topic -> review", writer=writer)


def test_the_writers_voice_is_in_the_first_draft_of_a_module_too(script, say):
    lm = script("Nice.", say.ok)
    Reflect(Predict("topic -> review", lm=lm), writer="poet")(topic="soup")
    assert lm.requests[0].messages[0]["content"] == "You are a poet."
