"""`redraft report` and `redraft view` as they are typed."""

import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner
from page_runs import Journal

from redraft.cli import main
from redraft.store import SqliteStore


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    journal = Journal()
    journal("run", key="run", seed=1, version=1, budget=None, spec={"task": "Say half \ud83d", "strategy": "Refine"})
    journal.answered(journal.asked())
    with SqliteStore(tmp_path / "runs.db") as store:
        store.append("first", journal.events)
        store.append("second", journal.events)
    return tmp_path / "runs.db"


def redraft(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_a_report_is_one_small_file(path):
    said = redraft("report", "fir", "-o", "out.html", "--store", path)
    assert said.exit_code == 0, said.stderr
    page = (path.parent / "out.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "Say half" in page
    assert len(page) < 100_000
    assert "wrote run first to out.html" in said.stderr
    assert said.stdout == ""


def test_the_newest_run_is_meant_where_none_is_named(path):
    said = redraft("report", "-o", "-", "--store", path)
    assert said.exit_code == 0
    assert "<code>second</code>" in said.stdout


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["report", "none"], "there is no run 'none'"),
        (["report", "first", "-o", "no/such/folder.html"], "in no folder"),
        (["view", "--host", "0.0.0.0"], "has no password"),
        (["view", "--host", "192.0.2.1"], "has no password"),
        (["view", "--host", "example.org"], "has no password"),
    ],
)
def test_what_cannot_be_is_said(path, args, why):
    said = redraft(*args, "--store", path)
    assert said.exit_code == 2
    assert why in said.stderr


def test_no_store_is_made_in_order_to_look(tmp_path):
    for command in ("report", "view"):
        said = redraft(command, "--store", tmp_path / "none.db")
        assert said.exit_code == 2
    assert not (tmp_path / "none.db").exists()


def test_without_the_template_library_it_says_what_to_install(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for command in ("report", "view"):
        said = redraft(command, "--store", path)
        assert (said.exit_code, said.stdout) == (2, "")
        assert said.stderr == "redraft: the page needs the package jinja2: pip install 'redraft[server]'\n"


def test_view_says_where_it_is_and_ends_with_ctrl_c(path):
    command = [sys.executable, "-m", "redraft", "view", "--no-open", "--port", "0", "--store", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as view:
        try:
            address = view.stdout.readline()
            assert address.startswith("http://127.0.0.1:")
            view.send_signal(signal.SIGINT)
            assert view.wait(timeout=30) == 130
        finally:
            view.kill()
