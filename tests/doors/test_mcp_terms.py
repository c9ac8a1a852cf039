"""What needs no client: the missing extra, and what an owner allows."""

import sys

import pytest
from click.testing import CliRunner

from redraft import Budget
from redraft.cli import main
from redraft.errors import InputError
from redraft.integrations.mcp.terms import Terms


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
