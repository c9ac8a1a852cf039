"""`redraft runs`: what was kept of runs, looked at, compared, exported and deleted."""

import json
import os
import sqlite3

import pytest
from cli_texts import BRIEF, THREE

from redraft.config import close_stores
from redraft.store import SqliteStore
from redraft.types import Event

CHECKS = ("--check", "sentences:3", "--check", "contains:La Maison")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept" / "runs.db"


@pytest.fixture
def keep(redraft, path, monkeypatch):
    """Runs `redraft run` where runs are kept; returns the run's id."""
    monkeypatch.setenv("REDRAFT_STORE", str(path))

    def run(*args, replies=(BRIEF, THREE), code=0):
        said = redraft("run", *(args or ("Review La Maison", *CHECKS)), "--json", replies=list(replies))
        close_stores()  # as the process does when it ends
        assert said.exit_code == code, said.stderr
        return json.loads(said.stdout)["run_id"]

    yield run
    close_stores()


@pytest.fixture
def cut_off(path):
    """A run that a kill ended in its first call."""

    def make(run_id="cut-off"):
        content = json.dumps({"messages": [{"content": "Say it", "role": "user"}], "model": "m"}, separators=(",", ":"))
        asked = {"content": content, "role": "author", "cap": None, "reserved": {"calls": 1, "uncertain_tokens": 90}}
        with SqliteStore(path) as store:
            store.append(run_id, [Event(seq=0, kind="run", time=1.0, key="run", data={"seed": 1, "version": 1})])
            store.append(run_id, [Event(seq=1, kind="intent", time=2.0, key="k", data=asked)])
        return run_id

    return make


def test_the_newest_runs_first_in_lines_that_fit(redraft, keep, cut_off):
    cut_off()
    first = keep("Write about a house\nin two lines " + "and more " * 20, "--check", "words:1-99", replies=["Fine."])
    second = keep()
    failed = keep("Write", "--check", "words:500-600", "-n", "1", code=4, replies=["Short."])
    said = redraft("runs", "list")
    assert said.exit_code == 0
    head, *lines = said.stdout.splitlines()
    assert head.split() == ["run", "begun", "stopped", "score", "calls", "tokens", "cost", "task"]
    newest = [line.split()[0] for line in lines[:3]]
    assert all(run_id.startswith(short) for run_id, short in zip((failed, second, first), newest, strict=True))
    assert len({*newest}) == 3
    assert all(len(line) <= 80 for line in [head, *lines])
    assert "  Write about " in lines[2]
    assert "not ended" in lines[3]
    assert "90" not in lines[3].split()
    assert "0+" in lines[3].split()
    assert lines[1].split()[3:6] == ["passed", "1.00", "2"]


def test_a_run_that_an_error_ended_is_marked(redraft, keep, path):
    with SqliteStore(path) as store:
        store.append("bad", [Event(seq=0, kind="stop", time=1.0, data={"reason": "error", "error": "LMError: no key"})])
    assert "x error" in redraft("runs", "list", "--store", path).stdout
    assert "LMError: no key" in redraft("runs", "show", "bad", "--store", path).stdout


def test_the_list_as_json(redraft, keep, cut_off, path):
    cut_off()
    run_id = keep()
    said = json.loads(redraft("runs", "list", "--json").stdout)
    assert said["store"] == str(path)
    done, cut = said["runs"]
    assert (done["run_id"], done["stop"], done["calls"], done["failed"], done["drafts"]) == (
        run_id,
        "passed",
        2,
        False,
        2,
    )
    assert (cut["ended"], cut["most_tokens"], cut["task"]) == (None, 90, "Say it")


def test_a_limit_says_what_it_left_out(redraft, keep):
    keep()
    keep()
    said = redraft("runs", "list", "-n", "1")
    assert len(said.stdout.splitlines()) == 2
    assert "1 older ones are left out" in said.stderr


def test_show_is_what_the_run_itself_shows(redraft, keep, monkeypatch):
    run_id = keep()
    monkeypatch.delenv("REDRAFT_STORE")
    live = redraft("run", "Review La Maison", *CHECKS, "--show", "trajectory", replies=[BRIEF, THREE]).stdout
    monkeypatch.setenv("REDRAFT_STORE", "kept/runs.db")
    said = redraft("runs", "show", run_id[:-3])
    assert said.exit_code == 0
    assert said.stdout.endswith(f"\n\n{live}")
    assert said.stdout.startswith(f"run {run_id} | ")
    assert "2 calls | " in said.stdout
    assert "task: Review La Maison" in said.stdout
    data = json.loads(redraft("runs", "show", run_id, "--json").stdout)
    assert [a["text"] for a in data["refinements"][0]["attempts"]] == [BRIEF, THREE]
    assert data["refinements"][0]["best"] == 1
    assert data["events"][-1]["kind"] == "stop"


def test_a_run_without_drafts_is_shown(redraft, cut_off, path):
    said = redraft("runs", "show", cut_off(), "--store", path)
    assert (said.exit_code, "not ended" in said.stdout, "0 to 90 tokens" in said.stdout) == (0, True, True)


def test_the_diff_of_two_drafts(redraft, keep):
    run_id = keep()
    there = redraft("runs", "diff", run_id, "1", "2").stdout
    assert "place" in there
    assert "{+" in there
    assert redraft("runs", "diff", run_id, "2", "2").stdout == THREE + "\n"
    said = redraft("runs", "diff", run_id, "1", "3")
    assert (said.exit_code, "no draft 3; it has 1, 2" in said.stderr) == (2, True)


def test_short_ids_are_taken_where_they_are_one_run_s(redraft, cut_off, path):
    cut_off("abc-1")
    cut_off("abc-2")
    cut_off("abc")

    def show(short):
        return redraft("runs", "show", short, "--store", path)

    assert show("abc-1").exit_code == show("abc").exit_code == 0, "a whole id is no beginning of another one"
    said = show("ab")
    assert said.exit_code == 2
    assert "3 runs: abc, abc-2, abc-1" in said.stderr
    assert "no run 'x'" in show("x").stderr
    assert [line.split()[0] for line in redraft("runs", "list", "--store", path).stdout.splitlines()[1:]] == [
        "abc",
        "abc-2",
        "abc-1",
    ]


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_everything_of_a_run_as_json(redraft, keep, tmp_path, form):
    ids = [keep(), keep()]
    said = redraft("runs", "export", "--format", form, "-o", "out.json")
    assert (said.exit_code, said.stdout) == (0, "")
    text = (tmp_path / "out.json").read_text()
    runs = json.loads(text) if form == "json" else [json.loads(line) for line in text.splitlines()]
    assert [run["run_id"] for run in runs] == ids, "the oldest first"
    assert [a["text"] for a in runs[0]["refinements"][0]["attempts"]] == [BRIEF, THREE]
    assert {e["kind"] for e in runs[0]["events"]} >= {"run", "intent", "call", "attempt", "stop"}
    assert len(redraft("runs", "export", ids[1]).stdout.splitlines()) == 1


def test_training_sets(redraft, keep, cut_off):
    cut_off()
    keep()
    keep()
    said = redraft("runs", "export", "--format", "sft")
    (example,) = map(json.loads, said.stdout.splitlines())
    assert [m["role"] for m in example["prompt"]] == ["user"]
    assert example["completion"] == [{"role": "assistant", "content": THREE}]
    assert "1 example of 3 runs" in said.stderr
    assert "1 left out: it is there already" in said.stderr
    (pair,) = map(json.loads, redraft("runs", "export", "--format", "dpo").stdout.splitlines())
    assert pair["prompt"] == example["prompt"]
    assert (pair["chosen"], pair["rejected"][0]["content"]) == (example["completion"], BRIEF)


def test_an_export_that_fails_leaves_the_file_that_was_there(redraft, keep, tmp_path, path):
    run_id = keep()
    (tmp_path / "out.jsonl").write_text("before")
    db = sqlite3.connect(path)
    db.execute("DELETE FROM messages")
    db.commit()
    db.close()
    said = redraft("runs", "export", run_id, "-o", "out.jsonl")
    assert (said.exit_code, "damaged" in said.stderr) == (1, True)
    assert (tmp_path / "out.jsonl").read_text() == "before"
    assert not list(tmp_path.glob("*.part"))


def test_an_export_goes_where_it_is_told_and_replaces_nothing_but_files(redraft, keep, tmp_path):
    run_id = keep()
    line = redraft("runs", "export", run_id).stdout
    assert redraft("runs", "export", run_id, "-o", "-").stdout == line
    (tmp_path / "link").symlink_to("linked.jsonl")
    assert redraft("runs", "export", run_id, "-o", "link").exit_code == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "linked.jsonl").read_text() == line
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert redraft("runs", "export", run_id, "-o", "pipe").exit_code == 0
    assert os.read(reader, 1 << 20).decode() == line
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    for out, why in ((".", "is a folder"), ("", "is a folder"), ("gone/out", "in no folder")):
        said = redraft("runs", "export", run_id, "-o", out)
        assert (said.exit_code, why in said.stderr) == (2, True)


def test_deleting_asks_on_a_terminal_and_needs_yes_elsewhere(redraft, keep, cut_off, monkeypatch):
    run_id = keep()
    said = redraft("runs", "delete", run_id)
    assert (said.exit_code, "--yes" in said.stderr) == (2, True)
    cut_off()
    monkeypatch.setattr("redraft.cli.runs.stdin_is_a_terminal", lambda: True)
    said = redraft("runs", "delete", "cut", input="n\n")
    assert said.exit_code == 1
    assert "1 not ended" in said.stderr
    assert "nothing was deleted" in said.stderr
    assert redraft("runs", "delete", "cut", input="y\n").exit_code == 0
    assert redraft("runs", "delete", run_id, "-y").exit_code == 0
    assert "no run is kept" in redraft("runs", "list").stderr


def test_no_id_is_no_beginning_of_one(redraft, cut_off, path):
    """A variable that is not set deletes nothing."""
    cut_off()
    for command in ("show", "export"):
        assert "no run ''" in redraft("runs", command, "", "--store", path).stderr
    assert redraft("runs", "delete", "", "-y", "--store", path).exit_code == 2
    assert "not ended" in redraft("runs", "list", "--store", path).stdout


def test_a_spoilt_run_is_said_and_can_be_deleted(redraft, cut_off, path):
    cut_off("good")
    cut_off("bad")
    db = sqlite3.connect(path)
    db.execute("UPDATE events SET data = 'no JSON' WHERE run = 2")
    db.commit()
    db.close()
    said = redraft("runs", "list", "--store", path)
    bad, good = said.stdout.splitlines()[1:]
    assert (said.exit_code, bad.split()[0], "x unreadable" in bad, "not ended" in good) == (0, "bad", True, True)
    data = json.loads(redraft("runs", "list", "--json", "--store", path).stdout)
    assert [(run["run_id"], run["stop"]) for run in data["runs"]] == [("bad", "unreadable"), ("good", None)]
    said = redraft("runs", "show", "bad", "--store", path)
    assert (said.exit_code, "another program has changed it" in said.stderr) == (1, True)
    assert redraft("runs", "show", "good", "--store", path).exit_code == 0
    said = redraft("runs", "export", "--store", path)
    assert (said.exit_code, len(said.stdout.splitlines()), "bad is left out" in said.stderr) == (0, 1, True)
    assert redraft("runs", "export", "bad", "--store", path).exit_code == 1
    assert redraft("runs", "delete", "bad", "-y", "--store", path).exit_code == 0
    assert redraft("runs", "list", "--store", path).exit_code == 0


def test_gc_says_what_it_did(redraft, keep):
    keep()
    redraft("runs", "delete", "-y", keep("Something else", "--check", "words:1-9", replies=["Fine."]))
    said = redraft("runs", "gc")
    assert (said.exit_code, said.stdout.startswith("dropped 1 messages and 0 events")) == (0, True)


def test_looking_for_runs_makes_no_file(redraft, tmp_path):
    for command in (("list",), ("show", "x"), ("gc",)):
        said = redraft("runs", *command)
        assert said.exit_code == 2
        assert "no runs are kept in .redraft/runs.db" in said.stderr
        assert "--store" in said.stderr
    assert list(tmp_path.iterdir()) == []


def test_where_the_runs_are(redraft, cut_off, path, tmp_path, monkeypatch):
    """The option, REDRAFT_STORE, the project's file, the usual place."""
    cut_off()
    (tmp_path / "redraft.toml").write_text('store = "kept/runs.db"\n')
    assert "not ended" in redraft("runs", "list").stdout
    monkeypatch.setenv("REDRAFT_STORE", "nowhere.db")
    assert "nowhere.db" in redraft("runs", "list").stderr
    assert "not ended" in redraft("runs", "list", "--store", path).stdout


def test_a_file_that_is_no_store_is_said(redraft, tmp_path):
    (tmp_path / "text").write_text("no database\n" * 100)
    said = redraft("runs", "list", "--store", "text")
    assert (said.exit_code, "is no SQLite file" in said.stderr) == (1, True)


def test_a_process_that_ends_leaves_a_whole_store(start, path, tmp_path):
    """`os._exit` at the end of the command loses nothing, and leaves no file beside the database."""
    process = start("run", "x", "-m", "nobody/nothing", "--base-url", "http://127.0.0.1:9/v1", "--store", str(path))
    process.communicate(timeout=60)
    assert {file.name for file in path.parent.iterdir()} == {"runs.db"}
    with SqliteStore(path) as store:
        (run,) = store.runs()
        assert (run.failed, run.task) == (True, "x")


def test_the_newest_run_is_shown_and_gone_on_with_where_none_is_named(redraft, keep):
    assert redraft("runs", "show").exit_code == 2
    keep("Write about a house", "--check", "words:1-99", replies=["Fine."])
    newest = keep("Write about a boat", "--check", "words:1-99", replies=["Good."])
    assert json.loads(redraft("runs", "show", "--json").stdout)["run_id"] == newest
    said = redraft("resume")
    assert said.stdout == "Good.\n", said.stderr


def test_resume_without_a_run_takes_the_newest_that_it_can_go_on_with(redraft, keep, path, tmp_path):
    ours = keep("Write about a house", "--check", "words:1-99", replies=["Fine."])
    (tmp_path / "data.jsonl").write_text('{"task": "Write"}\n')
    said = redraft("eval", "data.jsonl", "--strategy", "refine", "--check", "words:1-99", "--no-baselines", "--store",
                   str(path), replies=["Later."])  # fmt: skip
    assert said.exit_code == 0, said.stderr
    newer = json.loads(redraft("runs", "show", "--json").stdout)["run_id"]
    assert newer != ours
    said = redraft("resume")
    assert (said.stdout, said.exit_code) == ("Fine.\n", 0)
    assert f"going on with {ours}; what is newer was begun otherwise" in said.stderr
    redraft("runs", "delete", ours, "-y")
    said = redraft("resume")
    assert said.exit_code == 2
    assert "can be gone on with: `redraft run` or `redraft rlm` began none of them" in said.stderr


@pytest.mark.parametrize(
    "spec", [{"options": 3, "task": "x"}, {"options": {}}, {"options": {}, "task": "x", "rlm": 1}, "x"]
)
def test_a_run_whose_options_are_none_of_ours_is_passed_over(redraft, keep, path, spec):
    ours = keep("Write about a house", "--check", "words:1-99", replies=["Fine."])
    with SqliteStore(path) as store:
        store.append(
            "odd", [Event(seq=0, kind="run", time=9e9, key="run", data={"seed": 1, "version": 1, "spec": spec})]
        )
    said = redraft("resume")
    assert (said.stdout, said.exit_code) == ("Fine.\n", 0), said.stderr
    assert f"going on with {ours}" in said.stderr
    said = redraft("resume", "odd")
    assert said.exit_code == 2
    assert ("was begun by a program" if spec == "x" else "run odd cannot be gone on with") in said.stderr
