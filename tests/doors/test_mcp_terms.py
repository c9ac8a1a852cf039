"""What needs no client: the missing extra, and what an owner allows."""

import sys

import pytest
from click.testing import CliRunner

from redraft import Budget, SqliteStore, context
from redraft.cli import main
from redraft.errors import ConfigError, InputError
from redraft.integrations.mcp.forms import RefineForm
from redraft.integrations.mcp.refining import plan, refine
from redraft.integrations.mcp.terms import Terms
from redraft.report.kept import auto_of
from redraft.strategies import BestOfN, Refine
from redraft.testing import FaultServer, ScriptedLM


def test_without_its_package_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    ended = CliRunner().invoke(main, ["mcp"])
    assert ended.exit_code == 2
    assert "pip install 'redraft[mcp]'" in ended.stderr


def test_a_request_gets_the_tighter_of_both_limits():
    terms = Terms(most=Budget(calls=5, tokens=None, cost=1.0))
    budget = terms.budget({"calls": 9, "tokens": 100, "cost": None, "seconds": None})
    assert budget == Budget(calls=5, tokens=100, cost=1.0)


def test_clients_choose_among_the_offered_models_only():
    terms = Terms(models=("small", "openai/big"), base_url="http://127.0.0.1:1/v1")
    assert terms.lm(None).name == "openai/small"
    assert terms.lm("openai/big").name == "openai/big"
    with pytest.raises(InputError, match="choose one of: small, openai/big"):
        terms.lm("openai/bigger")


@pytest.mark.parametrize("name", ["local/model.gguf", "local/models/x.gguf", "local:none", "nobody"])
def test_clients_name_no_files_and_nothing_unknown(name):
    with pytest.raises(InputError, match="model"):
        Terms().lm(name)


def test_without_offered_models_only_a_trusted_servers_clients_may_name_one():
    with pytest.raises(InputError, match="redraft mcp --model"):
        Terms().lm("local/smollm2-135m")
    assert Terms(trusted=True).lm("ollama/x").name == "ollama/x"


KEY = "scripted | task -> answer | words"
BEST = {"strategy": "best-of-n", "attempts": 2, "evidence": {"date": "2026-01-02", "why": "it mends more"}}


async def test_auto_takes_what_was_measured_and_why_is_in_the_journal(tmp_path):
    lm, told = ScriptedLM(["one", "two", "three"]), []
    given = RefineForm(task="Count", checks=["words:3"])
    with SqliteStore(tmp_path / "runs.db") as store:
        with context(model=lm, store=store):
            out = await refine(given, Terms(calibrated={KEY: BEST}), lambda *args: told.append(args))
        events = store.read(out.run_id)
    assert (out.strategy, out.passed, len(lm.requests)) == ("best-of-n", False, 2)
    assert [args[:2] for args in told] == [(1, 2), (2, 2)]
    assert auto_of(events) == "best-of-n, attempts 2: calibrated on 2026-01-02, it mends more"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"strategy": "refine"}, None),
        ({"rounds": 1, "checks": []}, "without checks there is nothing that a calibration measures"),
        ({"draft": "a b"}, "draft was given"),
        ({"criteria": ["colour"]}, "criteria was given"),
        ({"inputs": {"start": "one"}}, "nothing was calibrated for 'scripted | start, task -> answer | words'"),
        (
            {"checks": ["words:3", "lowercase"]},
            "nothing was calibrated for 'scripted | task -> answer | lowercase, words'",
        ),
    ],
)
async def test_why_auto_takes_no_calibration(asked, why):
    with context(model=ScriptedLM([])):
        planned = await plan(
            RefineForm(**{"task": "Count", "checks": ["words:3"], **asked}), Terms(calibrated={KEY: BEST})
        )
    assert not isinstance(planned.strategy, BestOfN)
    assert planned.auto == ({} if why is None else {"took": planned.name, "why": why, "calibrated": False})


async def test_a_client_says_how_often_and_another_models_calibration_is_not_taken():
    given = RefineForm(task="Count", checks=["words:3"], attempts=5)
    with context(model=ScriptedLM([])):
        planned = await plan(given, Terms(calibrated={KEY: BEST}))
        other = await plan(given, Terms(calibrated={KEY.replace("scripted", "other"): BEST}))
        critique = await plan(given, Terms(calibrated={KEY: {"strategy": "critique", "rounds": 2}}))
    assert (planned.name, planned.steps, planned.strategy.N) == ("best-of-n", 5, 5)
    assert (type(other.strategy), other.auto["why"]) == (Refine, f"nothing was calibrated for {KEY!r}")
    assert (critique.name, critique.steps) == ("critique", 3)
    assert planned.auto["given"] == "attempts"
    assert planned.auto["why"].endswith("; but attempts 5 is given, calibrated is 2")
    assert critique.auto["why"] == "calibrated; attempts 5 has no use in it"


async def test_who_gives_attempts_wants_more_than_the_one_draft_that_was_measured():
    terms = Terms(calibrated={KEY: {"strategy": "predict", "attempts": 1}})
    with context(model=ScriptedLM([])):
        one = await plan(RefineForm(task="Count", checks=["words:3"], attempts=1), terms)
        more = await plan(RefineForm(task="Count", checks=["words:3"], attempts=3), terms)
    assert (one.name, one.steps, one.auto["calibrated"]) == ("predict", 1, True)
    assert (more.name, more.steps, more.auto["calibrated"]) == ("refine", 3, False)
    assert more.auto["why"] == "attempts 3 is given, not one draft as calibrated"


async def test_the_critic_that_was_measured_is_asked_at_the_owners_address():
    with FaultServer(lambda body: "no" if body["model"] == "test" else '{"verdict": "ok", "issues": []}') as up:
        key = KEY.replace("scripted", "openai/test")
        entry = {"strategy": "critique", "critic": "openai/other"}
        terms = Terms(models=("openai/test",), base_url=up.base_url, calibrated={key: entry})
        terms.check()
        await refine(RefineForm(task="Count", checks=["words:3"]), terms, lambda *_: None)
    assert [request["model"] for request in up.requests] == ["test", "other"]


def test_a_critic_without_a_key_is_said_at_the_start_where_clients_can_come_to_it(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    entry = {"strategy": "critique", "critic": "openai/other"}
    with context(model=ScriptedLM([])):
        with pytest.raises(ConfigError, match="no API key for openai/other"):
            Terms(calibrated={KEY: entry}).check()
        Terms(calibrated={KEY.replace("scripted", "another"): entry, KEY.replace("answer", "poem"): entry}).check()


@pytest.mark.doors
@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("calibrated = 5", "[calibrated] must be a table of tables, got 5"),
        ("calibrated = []", "must be a table of tables, got []"),
        ('[calibrated]\nx = "predict"', "must be a table, got 'predict'"),
        ('[calibrated.x]\nstrategy = "refine"\nattempts = 1000000000', "a whole number from 1 to 10,000,000"),
        ('[calibrated.x]\nstrategy = "critique"\ncritic = "kind"\nrounds = 0', "says rounds = 0"),
    ],
)
def test_a_table_that_cannot_be_used_is_said_at_the_start(tmp_path, monkeypatch, table, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redraft.toml").write_text(table + "\n", encoding="utf-8")
    ended = CliRunner().invoke(main, ["mcp", "-m", "openai/test", "--base-url", "http://127.0.0.1:9/v1"], input="")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert said in ended.stderr
