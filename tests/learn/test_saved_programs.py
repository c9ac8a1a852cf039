"""A saved program asks for what the program asked for; what does not fit is refused whole; no key is ever in a file."""

import copy
import datetime as dt
import json
import os
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redraft
from redraft import BestOfN, ChainOfThought, Module, Predict, ReAct, Refine, SelfRefine, checks
from redraft.errors import ConfigError
from redraft.lm.openai import OpenAILM
from redraft.modules.demos import as_demos
from redraft.signature import Field, Signature, SignatureSpec
from redraft.testing import FunctionLM, ScriptedLM


def look_up(word: str) -> str:
    """Look a word up."""
    return word


class Program(Module):
    """One of each kind."""

    def __init__(self, lm=None, *, out="ad"):
        self.facts = Predict("product, tone = 'dry' -> facts: list[str]", lm=lm)
        self.write = Refine(ChainOfThought(f"facts -> {out}", lm=lm), N=3, checks=[checks.words(3)])
        self.steps = {"look": ReAct("q -> a", tools=[look_up], lm=lm)}

    def forward(self, product):
        return self.write(facts=self.facts(product=product).facts)


def taught():
    program = Program()
    program.facts.signature = program.facts.signature.with_instructions("List facts.")
    program.facts.demos = [{"product": "soap", "facts": ["cleans", "smells"]}]
    program.facts.temperature, program.facts.max_tokens, program.facts.sampling = (
        0.25,
        99,
        {"top_p": 0.5, "stop": ("#",)},
    )
    program.facts.lm = "openai/gpt-4.1-mini"
    program.write.N, program.write.threshold = 5, 0.75
    program.write.module.demos = [{"facts": "cleans", "reasoning": "be short", "ad": "Soap. Clean."}]
    program.steps["look"].max_iters = 4
    return program


def shape(program):
    """All that a program sends, and how often."""
    facts, inner, look = program.facts, program.write.module, program.steps["look"]
    return [
        (p.signature, p.signature.instructions, p.lm, p.system, p.temperature, p.max_tokens, p.sampling)
        for p in (facts, inner, look)
    ] + [facts.demos, inner.demos, facts.reasks, look.max_iters, program.write.N, program.write.threshold]


def test_a_program_comes_back_as_it_was(tmp_path):
    program = taught()
    program.save(tmp_path / "ad.json")
    fresh = Program()
    assert shape(fresh) != shape(program)
    assert fresh.load(tmp_path / "ad.json") is fresh
    assert shape(fresh) == shape(program)
    assert fresh.facts.sampling["stop"] == ("#",)
    assert fresh.dump_state() == program.dump_state()
    state = json.loads((tmp_path / "ad.json").read_text())
    assert (state["format"], state["version"], state["redraft"]) == ("redraft program", 1, redraft.__version__)
    assert list(state["modules"]) == ["facts", "write", "write.module", "steps['look']"]


def test_a_loaded_program_asks_for_the_same(tmp_path):
    def asked(program):
        lm = ScriptedLM(['{"facts": ["a"]}', '{"reasoning": "r", "ad": "one two three"}'])
        program.facts.lm = program.write.module.lm = lm
        program(product="tea")
        return [(r.messages, r.temperature, r.top_p, r.stop, r.schema) for r in lm.requests]

    taught().save(tmp_path / "ad.json")
    assert asked(Program().load(tmp_path / "ad.json")) == asked(taught())


def test_a_learned_demo_remembers_its_example_in_the_file(tmp_path):
    program = Predict("q -> a")
    program._demos = tuple(copy.copy(d) for d in as_demos(program.signature, [{"q": "x", "a": "y"}]))
    object.__setattr__(program._demos[0], "came_from", "abc")
    program.save(tmp_path / "p.json")
    (demo,) = redraft.load(tmp_path / "p.json").demos
    assert (demo.to_dict(), demo.came_from) == ({"q": "x", "a": "y"}, "abc")


def test_no_key_is_in_a_file(tmp_path, monkeypatch):
    secret = "sk-very-secret-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    lm = OpenAILM("gpt-4.1-mini", base_url="https://user:hunter2hunter2@example.org/v1", api_key=secret)
    predict = Predict("q -> a", lm=lm, extra={"api_key": secret, "headers": {"Authorization": f"Bearer {secret}"}})
    predict.save(tmp_path / "p.json")
    text = (tmp_path / "p.json").read_text()
    assert secret not in text and "hunter2" not in text and "example.org" not in text
    assert json.loads(text)["modules"][""]["model"] == lm.name
    other = Predict("q -> a", lm=lm, extra={"mine": 1})
    other.load(tmp_path / "p.json")
    assert other.lm is lm and other.sampling == {"extra": {"mine": 1}}


def test_a_model_by_name_is_set_but_replaces_no_model_of_ours():
    saved = Predict("q -> a", lm="openai/gpt-4.1").dump_state()
    mine = FunctionLM(lambda request: "x")
    assert Predict("q -> a").load_state(saved).lm == "openai/gpt-4.1"
    assert Predict("q -> a", lm="groq/other").load_state(saved).lm == "openai/gpt-4.1"
    assert Predict("q -> a", lm=mine).load_state(saved).lm is mine
    assert Predict("q -> a", lm="groq/other").load_state(Predict("q -> a").dump_state()).lm == "groq/other"


class Renamed(Program):
    def __init__(self):
        super().__init__(out="advert")
        self.fact_list = self.facts
        del self.facts


def test_a_mismatch_names_every_difference_and_changes_nothing(tmp_path):
    taught().save(tmp_path / "ad.json")
    program = Renamed()
    before = program.dump_state()
    with pytest.raises(ConfigError) as caught:
        program.load(tmp_path / "ad.json")
    assert str(caught.value).replace(str(tmp_path / "ad.json"), "FILE").splitlines() == [
        "FILE does not fit Renamed, which was left as it is:",
        "- fact_list: not in FILE",
        "- facts: not in the program",
        "- write.module: its signature is 'facts -> reasoning, advert', the saved one 'facts -> reasoning, ad'",
    ]
    assert program.dump_state() == before


def broken(change):
    state = taught().dump_state()
    change(state["modules"])
    return state


def put(*path_and_value):
    *path, last, value = path_and_value

    def change(modules):
        for key in path:
            modules = modules[key]
        modules[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (put("facts", "settings", "temperature", -1), "facts: temperature=-1"),
        (put("facts", "settings", "temperature", "hot"), "facts: "),
        (put("facts", "settings", "max_tokens", 0), "facts: max_tokens=0"),
        (put("facts", "settings", "sampling", {"top_q": 1}), "facts: unknown sampling parameter 'top_q'"),
        (put("facts", "settings", "rounds", 3), "facts: Predict had rounds, which Predict has not"),
        (put("facts", "demos", [{"inputs": {"product": "x"}, "outputs": {}}]), "facts: demo 0: .*'facts'"),
        (put("facts", "demos", [{"inputs": {}}]), "facts: damaged .KeyError: 'outputs'"),
        (put("facts", "demos", 3), "facts: damaged"),
        (put("facts", "settings", "x"), "facts: damaged"),
        (put("facts", "settings", "system", 5), "facts: system=5: a text"),
        (put("facts", "instructions", None), "facts: instructions=None: a text"),
        (put("facts", "settings", "sampling", {"extra": {"model": "x"}}), "facts: sampling holds extra"),
        (put("write", "settings", "N", 0), "write: N=0: a whole number, 1 or more"),
        (put("write", "settings", "threshold", "high"), "write: threshold='high'"),
        (put("write", "settings", "rounds", 3), "write: Refine had rounds, which Refine has not"),
        (put("steps['look']", "settings", "max_iters", True), "max_iters=True"),
    ],
)
def test_a_damaged_state_is_refused_whole(change, why):
    program = Program()
    before = program.dump_state()
    state = broken(change)
    state["modules"]["facts"].setdefault("instructions", "other")
    with pytest.raises(ConfigError, match=why):
        program.load_state(state)
    assert program.dump_state() == before


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "cannot be read as a saved program"),
        ("[]", "holds no saved program"),
        ("{}", 'lacks "format"'),
        (
            '{"format": "redraft program", "version": 2, "redraft": "9.1"}',
            "version 2 .*written by redraft 9.1.*update redraft",
        ),
        ('{"format": "redraft program", "version": "1"}', "version '1'"),
        ('{"format": "redraft program", "version": 1, "modules": {"": 1}}', "is damaged"),
    ],
)
def test_what_is_no_saved_program_is_said(tmp_path, text, why):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ConfigError, match=why):
        Predict("q -> a").load(tmp_path / "x.json")
    with pytest.raises(ConfigError, match=why):
        redraft.load(tmp_path / "x.json")


def test_a_state_that_is_no_mapping_is_said():
    with pytest.raises(ConfigError, match=r"is no saved program: it is \[1\]"):
        Predict("q -> a").load_state([1])


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.json cannot be read"):
        redraft.load(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot be written"):
        Predict("q -> a").save(tmp_path / "no" / "folder.json")


def test_a_file_is_whole_at_any_moment(tmp_path):
    path = tmp_path / "p.json"
    Predict("q -> a", system="old").save(path)
    unfit = Predict("q -> a", system="new")
    unfit.sampling = {"top_p": float("nan")}
    with pytest.raises(ConfigError, match="was not written: a setting is no JSON"):
        unfit.save(path)
    assert redraft.load(path).system == "old"
    descriptor = os.open(path, os.O_RDONLY)  # a reader that has the old file keeps it
    Predict("q -> a", system="new").save(path)
    with os.fdopen(descriptor) as old:
        assert json.load(old)["modules"][""]["settings"]["system"] == "old"
    assert redraft.load(path).system == "new"
    assert [file.name for file in tmp_path.iterdir()] == ["p.json"]


def test_half_an_emoji_is_kept(tmp_path):
    Predict("q -> a", system="\ud83d and é").save(tmp_path / "p.json")
    assert redraft.load(tmp_path / "p.json").system == "\ud83d and é"


def test_load_makes_a_predictor_again_and_says_what_is_code(tmp_path):
    cot = ChainOfThought("q -> a: int", system="Think.")
    cot.demos = [{"q": "1 + 1?", "reasoning": "add", "a": 2}]
    cot.save(tmp_path / "cot.json")
    made = redraft.load(tmp_path / "cot.json")
    assert type(made) is ChainOfThought
    assert (str(made.signature), made.demos, made.system) == (str(cot.signature), cot.demos, "Think.")
    for program in (Program(), Refine(cot, N=2), BestOfN("q -> a"), ReAct("q -> a", tools=[look_up])):
        program.save(tmp_path / "p.json")
        with pytest.raises(ConfigError, match=f"state of {type(program).__name__}, which is code"):
            redraft.load(tmp_path / "p.json")


class Item:
    """A class of the user's own."""


def test_types_of_your_own_are_given_by_name(tmp_path):
    class Size(Signature):
        """How large?"""

        thing: str = redraft.InputField(desc="as it is called")
        unit: str = redraft.InputField(default="cm")
        size: dict[str, int] = redraft.OutputField(desc="by side")

    Predict(Size).save(tmp_path / "p.json")
    made = redraft.load(tmp_path / "p.json").signature
    assert str(made) == str(Predict(Size).signature)
    assert made.instructions == "How large?" and made.inputs["thing"].desc == "as it is called"
    assert made.inputs["unit"].default == "cm"
    Predict(SignatureSpec([Field("q")], [Field("item", Item)])).save(tmp_path / "own.json")
    with pytest.raises(redraft.errors.SignatureError, match="unknown type 'Item'"):
        redraft.load(tmp_path / "own.json")
    assert redraft.load(tmp_path / "own.json", types={"Item": Item}).signature.outputs["item"].type is Item


def test_a_strategy_has_the_state_of_its_module_and_its_critics():
    program = SelfRefine("q -> a", critic=Predict("task, draft -> issues", system="strict"), rounds=4)
    fresh = SelfRefine("q -> a", critic=Predict("task, draft -> issues"), rounds=1)
    fresh.load_state(program.dump_state())
    assert (fresh.rounds, fresh.critic.system) == (4, "strict")
    assert list(Refine("q -> a", reward_fn=lambda args, pred: 1.0).dump_state()["modules"]) == ["", "module"]


TYPES = {
    str: st.text(min_size=1).filter(str.strip),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    list[str]: st.lists(st.text()),
    set[int]: st.sets(st.integers(0, 99)),
    tuple[int, ...]: st.lists(st.integers()).map(tuple),
    dict[str, int]: st.dictionaries(st.text(), st.integers()),
    Literal["a", "b"]: st.sampled_from(["a", "b"]),
    int | None: st.none() | st.integers(),
    dt.date: st.dates(),
    dt.timedelta: st.timedeltas(),
}


@st.composite
def predictors(draw):
    def fields(side):
        types = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=3))
        return [Field(f"{side}_{i}", type_, draw(st.text(max_size=9))) for i, type_ in enumerate(types)]

    spec = SignatureSpec(fields("in"), fields("out"), instructions=draw(st.text(max_size=20)))
    given = [{f.name: draw(TYPES[f.type]) for f in (*spec.inputs.values(), *spec.outputs.values())} for _ in range(2)]
    predict = Predict(
        spec,
        system=draw(st.text(max_size=9)),
        temperature=draw(st.none() | st.floats(0, 2)),
        max_tokens=draw(st.none() | st.integers(1, 9999)),
        reasks=draw(st.integers(0, 3)),
        **draw(
            st.fixed_dictionaries(
                {}, optional={"top_p": st.floats(0, 1), "stop": st.lists(st.text(), max_size=2).map(tuple)}
            )
        ),
    )
    predict.demos = given[: draw(st.integers(0, 2))]
    return predict


@settings(max_examples=60, deadline=None)
@given(predict=predictors())
def test_any_predictor_comes_back_and_asks_for_the_same(tmp_path_factory, predict):
    path = tmp_path_factory.getbasetemp() / "any.json"
    predict.save(path)
    made = redraft.load(path)
    assert made.dump_state() == predict.dump_state()
    assert made.signature._parts()[:3] == predict.signature._parts()[:3]
    assert made.identity() == predict.identity()
    names = ("system", "temperature", "max_tokens", "reasks", "sampling", "demos")
    assert [getattr(made, name) for name in names] == [getattr(predict, name) for name in names]


DSPY = {
    "facts": {
        "traces": [],
        "train": [],
        "demos": [{"augmented": True, "product": "soap", "facts": ["cleans"]}],
        "signature": {
            "instructions": "Given the fields `product`, `tone`, produce the fields `facts`.",
            "fields": [
                {"prefix": "Product:", "description": "${product}"},
                {"prefix": "Tone:", "description": "how it sounds"},
                {"prefix": "Facts:", "description": "${facts}"},
            ],
        },
        "lm": {"model": "openai/gpt-4o", "temperature": 1.0},
    },
    "write.module.predict": {
        "traces": [],
        "train": [],
        "demos": [{"facts": "x", "ad": "y"}, {"augmented": True, "facts": "x", "reasoning": "r", "ad": "y"}],
        "signature": {
            "instructions": "Write an ad.",
            "fields": [
                {"prefix": "Facts:", "description": "${facts}"},
                {"prefix": "Reasoning: Let's think step by step", "description": "${reasoning}"},
                {"prefix": "Ad:", "description": "${ad}"},
            ],
        },
        "lm": None,
    },
    "metadata": {"dependency_versions": {"python": "3.11", "dspy": "3.4.1", "cloudpickle": "3.1"}},
}
"""What `save` of dspy 3.4.1 writes."""


class FromDspy(Program):
    def __init__(self):
        super().__init__()
        del self.steps


def test_a_file_of_dspys_gives_instructions_descriptions_and_demos(tmp_path, capsys):
    (tmp_path / "dspy.json").write_text(json.dumps(DSPY))
    program = FromDspy().load(tmp_path / "dspy.json")
    assert program.facts.signature.instructions == ""
    assert program.facts.signature.inputs["tone"].desc == "how it sounds"
    assert program.facts.lm is None and program.facts.temperature is None
    assert [d.to_dict() for d in program.facts.demos] == [{"product": "soap", "tone": "dry", "facts": ["cleans"]}]
    assert program.write.module.signature.instructions == "Write an ad."
    assert [d.reasoning for d in program.write.module.demos] == ["r"]
    assert "left out 1 demo of write.module, for want of some fields" in capsys.readouterr().err


def test_a_file_of_dspys_for_another_program_is_refused_whole(tmp_path):
    def refused(change, why):
        state = copy.deepcopy(DSPY)
        change(state)
        program = FromDspy()
        with pytest.raises(ConfigError, match=why):
            program.load_state(state)
        assert program.dump_state() == FromDspy().dump_state()

    refused(lambda s: s.pop("facts"), "- facts: not in the state")
    refused(lambda s: s.update(other=s["facts"]), "- other: not in the program")
    refused(put("facts", "signature", "fields", []), "the fields of facts are ")
    refused(put("facts", "signature", "fields", 0, "description", "${item}"), r"\$\{item\}.*ours \$\{product\}")
    refused(put("facts", "demos", [3]), "damaged")
    refused(put("facts", "signature", None), "damaged")
    alone = {**DSPY["facts"], "metadata": DSPY["metadata"]}
    predict = Predict("product, tone -> facts: list[str]").load_state(alone)
    assert [demo.facts for demo in predict.demos] == []


def test_a_state_is_its_callers_own():
    state = Predict("q -> a", top_p=0.5).dump_state()
    before = copy.deepcopy(state)
    Predict("q -> a", extra={"api_key": "sk-very-secret-0123456789"}).load_state(state)
    assert state == before
    program = taught()
    program.dump_state()["modules"]["facts"]["demos"][0]["outputs"]["facts"].append("changed")
    assert program.facts.demos[0].facts == ["cleans", "smells"]


def test_a_link_stays_one_and_a_private_file_private(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    Predict("q -> a", system="old").save(real)
    real.chmod(0o600)
    link.symlink_to(real)
    Predict("q -> a", system="new").save(link)
    assert link.is_symlink()
    assert redraft.load(real).system == "new"
    assert real.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["", "x\0y", "n" * 254, "no/x.json"])
def test_a_name_for_no_file_is_said(tmp_path, name):
    with pytest.raises(ConfigError, match="cannot be written"):
        Predict("q -> a").save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", [{"instructions": None}, {"defaults": [1]}])
def test_a_damaged_predictor_is_said(tmp_path, change):
    state = Predict("q -> a").dump_state()
    state["modules"][""] |= change
    (tmp_path / "p.json").write_text(json.dumps(state))
    with pytest.raises(ConfigError, match="is damaged: its instructions are no text, or its defaults no JSON object"):
        redraft.load(tmp_path / "p.json")
