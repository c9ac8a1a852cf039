"""A preset's `auto` takes what `redraft calibrate` measured, as the command line does, and says why."""

import pytest
from click.testing import CliRunner
from serve_house import BAD, GOOD, serving

from redraft import SqliteStore
from redraft.cli import main
from redraft.errors import ConfigError
from redraft.report.kept import auto_of
from redraft.server.asked import Asked, Options
from redraft.server.presets import Plan
from redraft.server.serving import plans_of
from redraft.strategies import BestOfN, Refine
from redraft.testing import FaultServer
from redraft.types import Request

pytestmark = pytest.mark.serve

KEY = "openai/test | task -> answer | sentences"
BEST = {"strategy": "best-of-n", "attempts": 2, "evidence": {"date": "2026-01-02", "why": "it mends more"}}
HERE = {"model": "openai/test", "base_url": "http://127.0.0.1:9/v1"}
CHECKS = {"checks": ["sentences:3"]}


def made(entry, *, asked=None, options=None, key=KEY, **table):
    tables = {"presets": {"p": {**HERE, **CHECKS, **table}}, "calibrated": {key: entry}}
    preset = plans_of(tables).presets["refine/p"]
    request = Request(messages=({"role": "user", "content": "x"},), **(asked or {}))
    return Plan.of(preset, Asked(preset=preset.id, request=request, options=options or Options()))


def test_what_was_measured_is_taken_and_why_is_in_the_journal(tmp_path, monkeypatch):
    monkeypatch.setenv("REDRAFT_STORE", str(tmp_path / "runs.db"))
    with FaultServer(lambda _: BAD) as up, serving(up, {"three": CHECKS}, calibrated={KEY: BEST}) as served:
        told = served.chat("refine/three")
    assert up.calls == 2  # and not the three of a plain refine
    assert told.headers["x-redraft-strategy"] == "best-of-n"
    with SqliteStore(tmp_path / "runs.db") as store:
        said = auto_of(store.read(told.headers["x-redraft-run-id"]))
    assert said == "best-of-n, attempts 2: calibrated on 2026-01-02, it mends more"


def test_another_models_calibration_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("REDRAFT_STORE", str(tmp_path / "runs.db"))
    other = KEY.replace("test", "other")
    with FaultServer(lambda _: BAD) as up, serving(up, {"three": CHECKS}, calibrated={other: BEST}) as served:
        told = served.chat("refine/three")
    assert (up.calls, told.headers["x-redraft-strategy"]) == (3, "refine")
    with SqliteStore(tmp_path / "runs.db") as store:
        said = auto_of(store.read(told.headers["x-redraft-run-id"]))
    assert said == f"refine: nothing was calibrated for {KEY!r}"


@pytest.mark.parametrize(
    ("entry", "calls", "strategy"),
    [
        ({"strategy": "predict", "attempts": 1}, 1, "predict"),
        ({"strategy": "refine", "revise": "edit", "attempts": 2}, 2, "refine"),
        ({"strategy": "critique", "critic": "a strict judge"}, 2, "critique"),
        ({"strategy": "auto", "verdict": "no difference"}, 3, "refine"),
    ],
)
def test_what_an_entry_comes_to(entry, calls, strategy):
    def script(body):
        return '{"verdict": "ok", "issues": []}' if "json_schema" in str(body.get("response_format")) else BAD

    with FaultServer(script) as up, serving(up, {"three": CHECKS}, calibrated={KEY: entry}) as served:
        told = served.chat("refine/three")
    assert (up.calls, told.headers["x-redraft-strategy"]) == (calls, strategy)
    assert ("a strict judge" in str(up.requests)) == (strategy == "critique")
    if entry.get("revise") == "edit":
        assert BAD in str(up.requests[1]["messages"])


def test_a_turn_that_may_call_tools_refines_its_text_so_too():
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    with FaultServer(lambda _: BAD) as up, serving(up, {"three": CHECKS}, calibrated={KEY: BEST}) as served:
        assert served.chat("refine/three", tools=[tool]).status_code == 200
    assert up.calls == 2  # the first reply is its first draft


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"strategy": "refine"}, None),
        ({"rounds": 2}, "the preset gives rounds"),
        ({"critic": "kind"}, "the preset gives critic"),
        ({"models": ["openai/a", "openai/b"]}, "the preset gives models"),
        ({"effort": "low"}, "the preset gives effort"),
        ({"asked": {"effort": "low"}}, "the request gives effort"),
        ({"checks": []}, "without checks there is nothing that a calibration measures"),
        ({"checks": ["words:3"]}, "nothing was calibrated for 'openai/test | task -> answer | words'"),
    ],
)
def test_who_names_a_part_has_chosen(table, why):
    plan = made(BEST, **table)
    assert not isinstance(plan.strategy, BestOfN)
    assert plan.auto == ({} if why is None else {"took": plan.name, "why": why, "calibrated": False})


def test_a_request_says_how_often_and_how_good():
    plan = made(BEST, options=Options(attempts=5, threshold=0.5))
    assert (plan.strategy.N, plan.strategy.threshold, plan.auto["took"]) == (5, 0.5, "best-of-n, attempts 5")
    assert made(BEST, attempts=4).strategy.N == 4
    critique = made({"strategy": "critique", "rounds": 3}, options=Options(rounds=1))
    assert (critique.strategy.rounds, critique.auto["took"]) == (1, "critique, rounds 1")
    assert critique.auto["why"] == "calibrated; but rounds 1 is given, calibrated is 3"
    assert (critique.auto["given"], plan.auto["given"]) == ("rounds", "attempts")
    assert "given" not in made(BEST, attempts=2).auto  # as it was measured
    assert not made(BEST, asked={"logprobs": 1}).strategy.ladder.fix
    schema = made(BEST, asked={"schema": {"type": "object"}})  # one kind of check more: not what was measured
    assert type(schema.strategy) is Refine


@pytest.mark.parametrize(("table", "options"), [({"attempts": 4}, None), ({}, Options(attempts=4))])
def test_who_gives_attempts_wants_more_than_the_one_draft_that_was_measured(table, options):
    one = {**BEST, "strategy": "predict", "attempts": 1}
    plan = made(one, options=options, **table)
    assert (type(plan.strategy), plan.strategy.N, plan.auto) == (
        Refine,
        4,
        {
            "took": "refine",
            "why": "attempts 4 is given, not one draft as calibrated on 2026-01-02, it mends more",
            "calibrated": False,
        },
    )
    assert made({"strategy": "predict", "attempts": 3}).strategy.N == 1


def test_the_critic_that_was_measured_is_asked_at_the_presets_address():
    def script(body):
        return '{"verdict": "ok", "issues": []}' if body["model"] == "other" else BAD

    entry = {"strategy": "critique", "critic": "openai/other"}
    with FaultServer(script) as up, serving(up, {"three": CHECKS}, calibrated={KEY: entry}) as served:
        assert served.chat("refine/three").status_code == 200
    assert [request["model"] for request in up.requests] == ["test", "other"]


def test_a_critic_without_a_key_is_said_at_the_start(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    entry = {KEY.replace("openai/test", "ollama/x"): {"strategy": "critique", "critic": "openai/other"}}
    with pytest.raises(ConfigError, match=r"\[presets.p\] cannot be used: no API key for openai/other"):
        plans_of({"presets": {"p": {"model": "ollama/x", **CHECKS}}, "calibrated": entry})


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"strategy": "pray"}, "it is one of"),
        ({}, "says no strategy; it is one of"),
        ({**BEST, "attempts": 0}, "from 1 to 10,000,000"),
        ({**BEST, "attempts": 10**9}, "from 1 to 10,000,000"),
        ({"strategy": "critique", "rounds": "2"}, "says rounds = '2'"),
        ({"strategy": "critique", "critic": 5}, "says critic = 5"),
        ({"strategy": "refine", "revise": ["edit"]}, "says revise = "),
        (1, "a table"),
    ],
)
@pytest.mark.parametrize("key", [KEY, "another model's"])
def test_an_entry_that_cannot_be_used_is_said_at_the_start(entry, named, key):
    with pytest.raises(ConfigError, match=rf"^\[calibrated.*{named}"):
        made(entry, key=key)


@pytest.mark.parametrize("table", [5, [], "", True])
def test_a_table_that_is_none_is_refused(table):
    with pytest.raises(ConfigError, match=r"^\[calibrated\] must be a table of tables, got "):
        plans_of({"presets": {"p": {**HERE, **CHECKS}}, "calibrated": table})


def test_the_command_says_what_auto_comes_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    table = f'[presets.three]\nmodel = "openai/test"\nchecks = ["sentences:3"]\n[calibrated."{KEY}"]\n'
    entry = f'strategy = "best-of-n"\nattempts = 2\n[calibrated."{KEY}".evidence]\nwhy = "it\\nmends\\u001b more"\n'
    (tmp_path / "redraft.toml").write_text(table + entry, encoding="utf-8")
    told = CliRunner().invoke(main, ["serve", "--check"])
    assert told.exit_code == 0, told.stderr
    assert told.stdout.splitlines()[0] == (
        "refine/three  best-of-n, attempts 2 on openai/test (auto: calibrated, it mends\\x1b more)"
    )


def test_a_shadow_tries_what_the_preset_does():
    project = {"calibrated": {KEY: BEST}, "shadow": {"preset": "three", "share": 1.0}}
    with FaultServer(lambda _: GOOD) as up, serving(up, {"three": CHECKS}, **project) as served:
        assert served.chat("test").status_code == 200
        assert served.house.shadow._preset.measured == {KEY: BEST}
