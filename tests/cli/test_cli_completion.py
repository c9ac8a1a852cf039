"""What a shell proposes, asked as the shells ask."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from redraft import Predict, Run, SqliteStore, context, registry
from redraft.cli import main
from redraft.testing import ScriptedLM

SHELLS = ("bash", "zsh", "fish")


def proposed(line):
    """(kind, value) of what bash is told for a line that ends where the cursor is."""
    words = line.split()
    place = len(words) if line.endswith(" ") else len(words) - 1
    env = {"_REDRAFT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(place)}
    said = CliRunner().invoke(main, [], env=env)
    assert said.exit_code == 0, said.output
    return [tuple(each.split(",", 1)) for each in said.stdout.splitlines() if each]


def values(line):
    return [value for _, value in proposed(line)]


@pytest.fixture
def kept():
    """Three runs in the usual place."""
    Path(".redraft").mkdir()
    with SqliteStore(".redraft/runs.db") as store:
        for run_id, task in (("ab1", "first"), ("ab2", "second\x1b[31m"), ("c3", "third")):
            with context(model=ScriptedLM(["x"])), Run(run_id=run_id, store=store):
                Predict("task -> answer")(task=task)
    return Path(".redraft/runs.db")


def test_commands():
    assert values("redraft ru") == ["run", "runs"]
    assert {"run", "batch", "serve", "completion"} <= set(values("redraft "))
    assert values("redraft runs e") == ["export"]


def test_options():
    assert values("redraft run --check") == ["--check", "--checks", "--check-file"]
    assert "--strategy" in values("redraft run --")


@pytest.mark.parametrize("command", ["run", "batch"])
def test_strategies(command):
    assert values(f"redraft {command} --strategy re") == ["refine", "reflect"]
    assert set(values(f"redraft {command} --strategy ")) == {"auto", *registry.names("strategies")}


def test_eval_has_no_strategy_auto():
    assert set(values("redraft eval --strategy ")) == set(registry.names("strategies"))


def test_checks():
    assert values("redraft run --check sent") == ["sentences"]
    assert values("redraft rlm --check key") == ["keyword_counts"]


def test_choices():
    assert values("redraft runs export --format s") == ["sft"]
    assert values("redraft completion ") == [*SHELLS]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("redraft run --store ru", "file"),
        ("redraft run --checks ru", "file"),
        ("redraft serve --keys ru", "file"),
        ("redraft batch ru", "file"),
        ("redraft rlm question ru", "file"),
        ("redraft train pasr -o ru", "dir"),
    ],
)
def test_files_are_left_to_the_shell(line, kind):
    assert proposed(line) == [(kind, "ru")]


def test_a_task_is_free_text():
    assert proposed("redraft run Wri") == []


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("command", ["runs show", "runs export", "runs delete", "resume", "report"])
def test_runs_of_the_store_newest_first(command):
    assert values(f"redraft {command} ") == ["c3", "ab2", "ab1"]
    assert values(f"redraft {command} ab") == ["ab2", "ab1"]


def test_runs_of_another_store(kept):
    kept.rename("mine.db")
    assert values("redraft runs show --store mine.db ab1") == ["ab1"]
    assert values("redraft runs show ab1") == []


@pytest.mark.usefixtures("kept")
def test_the_task_stands_beside_the_run_and_cannot_steer_the_terminal():
    env = {"_REDRAFT_COMPLETE": "zsh_complete", "COMP_WORDS": "redraft runs show ab2", "COMP_CWORD": "3"}
    kind, value, shown = CliRunner().invoke(main, [], env=env).stdout.splitlines()
    assert (kind, value) == ("plain", "ab2")
    assert "second" in shown
    assert "\x1b" not in shown


def test_without_a_store_nothing_is_proposed_and_none_is_made():
    assert proposed("redraft runs show ") == []
    assert list(Path().iterdir()) == []


def test_an_id_that_bash_would_take_for_code_is_not_proposed(kept):
    with SqliteStore(kept) as store:
        for run_id in ("ab`id`", "ab $(id)", "ab\nab4", "-x", "ab:\u00e93"):
            with context(model=ScriptedLM(["x"])), Run(run_id=run_id, store=store):
                Predict("task -> answer")(task="t")
    assert values("redraft runs show ab") == ["ab:\u00e93", "ab2", "ab1"]


@pytest.mark.parametrize("name", ["runs.db", "redraft.toml"])
def test_what_cannot_be_read_proposes_nothing(name):
    Path(name).write_text("= no database and no TOML")
    store = "--store runs.db " if name == "runs.db" else ""
    assert proposed(f"redraft runs show {store}") == []


def test_a_store_is_only_read(kept):
    before = kept.read_bytes()
    assert values("redraft runs show ") == ["c3", "ab2", "ab1"]
    assert kept.read_bytes() == before


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_asks_in_the_way_that_is_answered(redraft, shell):
    said = redraft("completion", shell)
    assert said.exit_code == 0
    assert f"_REDRAFT_COMPLETE={shell}_complete" in said.stdout
    assert " redraft" in said.stdout


def test_another_shell_is_wrong_usage(redraft):
    said = redraft("completion", "tcsh")
    assert said.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in said.stderr


IN_THE_SHELL = {
    # What a press of Tab does, as near as a script can come to it, and what is then proposed (zsh: who is asked).
    "bash": (
        'COMP_WORDS=(redraft ru) COMP_CWORD=1; . ./script; _redraft_completion redraft; echo "${COMPREPLY[@]}"',
        ["run", "runs"],
    ),
    "zsh": (
        "autoload -Uz compinit; compinit -u -D; . ./script; print ${_comps[redraft]}",
        ["_redraft_completion"],
    ),
    "fish": ("source ./script; complete -C 'redraft ru' | cut -f 1", ["run", "runs"]),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_in_the_shell_itself(redraft, shell, tmp_path):
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"no {shell} here")
    command = tmp_path / "redraft"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m redraft "$@"\n')
    command.chmod(0o755)
    (tmp_path / "script").write_text(redraft("completion", shell).stdout)
    tab, wanted = IN_THE_SHELL[shell]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    said = subprocess.run([program, "-c", tab], check=False, capture_output=True, text=True, env=env, timeout=60)
    assert (said.stdout.split(), said.stderr) == (wanted, "")
