"""What redraft.toml says of presets, upstreams, shadow and the server itself; wrong things are said at the start."""

import pytest

from redraft.errors import ConfigError
from redraft.judges import Majority
from redraft.server.asked import Asked
from redraft.server.presets import Plan
from redraft.server.serving import plans_of
from redraft.strategies import BestOfN, Refine, Reflect, SelfRefine
from redraft.types import Request

pytestmark = pytest.mark.serve

URL = {"base_url": "http://127.0.0.1:9/v1"}
HERE = {"model": "openai/test", "base_url": "http://127.0.0.1:9/v1"}


def made(**table):
    preset = plans_of({"presets": {"p": {**HERE, **table}}}).presets["refine/p"]
    request = Request(messages=({"role": "user", "content": "x"},))
    return Plan.of(preset, Asked(preset=preset.id, request=request))


@pytest.mark.parametrize(
    ("table", "kind", "name"),
    [
        ({"checks": ["words:3"]}, Refine, "refine"),
        ({"strategy": "best-of-n", "checks": ["words:3"], "attempts": 5}, BestOfN, "best-of-n"),
        ({"critic": "a strict editor"}, SelfRefine, "self-refine"),
        ({"criteria": ["colour"], "editor": "a painter", "writer": "a poet"}, Reflect, "reflect"),
        ({}, SelfRefine, "self-refine"),
    ],
)
def test_auto_takes_what_fits(table, kind, name):
    plan = made(**table)
    assert type(plan.strategy) is kind
    assert plan.name == name


def test_roles_have_models_and_personas_of_their_own():
    strategy = made(
        critic="openai/big", reviser="a plain writer", judge="a kind judge", rounds=2, checks=["words:3"]
    ).strategy
    assert strategy.critic.lm.name == "openai/big"
    assert strategy.critic.lm.address == HERE["base_url"]
    assert "plain writer" in strategy.reviser.conversation.system
    assert strategy.rounds == 2


def test_a_vote_is_a_judge_that_asks_nobody():
    assert isinstance(made(strategy="best-of-n", judge="majority").strategy.judge, Majority)


def test_a_preset_may_call_its_model_more_often_at_once():
    lm = made(parallel=500).lm
    assert (lm.parallel, lm.name, lm.address) == (500, "openai/test", HERE["base_url"])
    assert made().lm.parallel == 64


def test_limits_and_tools_are_tables():
    plan = made(limits={"calls": 3, "seconds": 1.5}, tools={"required": ["a"], "attempts": 2})
    assert (plan.budget.calls, plan.budget.seconds) == (3, 1.5)


@pytest.mark.parametrize(
    ("project", "named"),
    [
        ({"presets": {"p": {**HERE, "colour": 1}}}, "colour"),
        ({"presets": {"p": {**HERE, "rounds": "two"}}}, "rounds"),
        ({"presets": {"p": {**HERE, "checks": ["nothing:1"]}}}, "nothing"),
        ({"presets": {"p": {**HERE, "strategy": "pray"}}}, "pray"),
        ({"presets": {"p": {**HERE, "limits": {"calls": 0}}}}, "calls"),
        ({"presets": {"p": {**HERE, "limits": {"money": 1}}}}, "limits"),
        ({"presets": {"p": {"model": "nowhere/x"}}}, "nowhere"),
        ({"presets": {"p": 1}}, "table"),
        ({"presets": 1}, "tables"),
        ({"upstreams": {"u": {"base_url": "ftp://x"}}}, "http"),
        ({"upstreams": {"u": {"base_url": "http://x", "kind": "soap"}}}, "kind"),
        ({"upstreams": {"u": {}}}, "base_url"),
        ({"server": {"colour": 1}}, "colour"),
        ({"server": {"active": 0}}, "active"),
        ({"shadow": {"preset": "p"}}, "preset"),
        ({"presets": {"p": HERE}, "shadow": {"preset": "p", "share": 2}}, "share"),
        ({"presets": {"p": HERE}, "shadow": {"preset": "p"}}, "no upstream they could come from"),
        (
            {"presets": {"p": HERE}, "shadow": {"preset": "p"}, "upstreams": {"u": {**URL, "kind": "anthropic"}}},
            "openai",
        ),
    ],
)
def test_what_is_wrong_is_named(project, named, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=named):
        plans_of(project)


@pytest.mark.parametrize(
    ("models", "taken", "wrong"),
    [
        (["gpt-*"], ["*"], None),
        (["gpt-4.1"], ["gpt-*"], None),
        (["gpt-*"], ["gpt-4.1"], None),
        (["*-mini"], ["gpt-*"], None),
        (["gpt-[45]*"], ["gpt-?.1"], None),
        (["*"], ["claude"], None),
        (["gtp-*"], ["gpt-*", "o3"], "gtp-*"),
        (["gpt-4", "claude-*"], ["gpt-*"], "claude-*"),
        (["gpt"], ["gpt-?"], "gpt"),
        (["*"], [], "*"),
    ],
)
def test_what_a_shadow_follows_has_to_pass_through(models, taken, wrong):
    project = {"presets": {"p": HERE}, "upstreams": {"u": {**URL, "models": taken}}}
    project["shadow"] = {"preset": "p", "models": models}
    if wrong is None:
        assert plans_of(project).shadow.models == (*models,)
        return
    with pytest.raises(ConfigError) as said:
        plans_of(project)
    told = f"u takes {', '.join(taken) or 'none'}"
    assert f"[shadow] models names {wrong!r}, which no upstream of kind openai takes ({told})" in str(said.value)
