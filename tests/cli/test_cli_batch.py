"""`redraft batch` and `redraft resume`, end to end: files in and out, what a second invocation does, what is refused."""

import csv
import itertools
import json
import re
import signal

import pytest

from redraft import registry
from redraft.batch.files import alone
from redraft.errors import AuthError, TransientLMError
from redraft.testing import FaultServer, FaultyLM, FunctionLM, Reply, ScriptedLM

CHECK = ("--check", "words:1-3")
NUMBERS = itertools.count()


@pytest.fixture
def named():
    """Gives a model a name for `-m`, so that invocations after one another have the same one."""
    models = {}
    registry.register("models", "kept", lambda name, base_url=None: models[name])

    def name(lm):
        number = str(next(NUMBERS))
        models[number] = lm
        return f"kept/{number}"

    yield name
    del registry._KNOWN["models"]["kept"]


@pytest.fixture
def lm():
    """Says what it is asked to say."""

    def reply(request):
        found = re.search(r"say (.*)", str(request.messages[-1]["content"]))
        return found[1] if found else "?"

    return FunctionLM(reply, name="echo", price=0.001)


@pytest.fixture
def batch(redraft, lm, named):
    name = named(lm)
    return lambda *args, **more: redraft("batch", *args, "-m", name, **more)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def tasks(n, **more):
    return [{"id": i, "task": f"say word{i}", **more} for i in range(n)]


def last(said):
    return said.stderr.splitlines()[-1]


def test_a_row_for_a_row_with_what_it_cost(batch, lm, tmp_path):
    source = write(tmp_path / "in.jsonl", tasks(5, note="kept", answer="of old"))
    said = batch(source, "out.jsonl", *CHECK, "--ordered")
    assert (said.exit_code, said.stdout) == (0, "")
    assert "5 rows done, 5 passed, 0 failed | 5 calls | " in last(said)
    rows = read(tmp_path / "out.jsonl")
    assert [row["answer"] for row in rows] == [f"word{i}" for i in range(5)]
    given, made = ["id", "task", "note", "input.answer"], ["answer", "score", "passed", "stop_reason"]
    assert [*rows[0]] == [*given, *made, "calls", "tokens", "cost", "run_id", "error"]
    receipt = {
        name: rows[3][name] for name in ("id", "note", "input.answer", "score", "passed", "stop_reason", "calls")
    }
    assert receipt == {
        "id": 3, "note": "kept", "input.answer": "of old", "score": 1.0, "passed": True, "stop_reason": "passed", "calls": 1
    }  # fmt: skip
    assert rows[3]["cost"] == pytest.approx(rows[3]["tokens"] * 0.001)
    assert (tmp_path / "out.jsonl.runs.db").exists()


def test_a_second_invocation_buys_only_what_is_missing(batch, lm, tmp_path):
    source = write(tmp_path / "in.jsonl", tasks(8))
    part = batch(source, "out.jsonl", *CHECK, "--call-limit", "5", "--concurrency", "2")
    assert part.exit_code == 3
    assert "limit of 5 calls is reached" in last(part)
    assert len(lm.requests) == len(read(tmp_path / "out.jsonl")) == 5
    out = tmp_path / "out.jsonl"
    out.write_text(out.read_text() + '{"id": 5, "ta')  # torn by a kill
    whole = batch(source, "out.jsonl", *CHECK)
    assert whole.exit_code == 0
    assert "5 rows are done already" in whole.stderr
    assert sorted(row["id"] for row in read(out)) == list(range(8))
    assert len(lm.requests) == 8
    again = batch(source, "out.jsonl", *CHECK)
    assert (again.exit_code, len(lm.requests)) == (0, 8)
    assert "8 rows done, 8 passed, 0 failed | 8 calls" in last(again)


def test_rows_that_only_the_store_has_are_written_without_buying(batch, lm, tmp_path):
    source = write(tmp_path / "in.jsonl", tasks(4))
    batch(source, "out.jsonl", *CHECK)
    before = sorted(read(tmp_path / "out.jsonl"), key=lambda row: row["id"])
    (tmp_path / "out.jsonl").unlink()
    batch(source, "out.jsonl", *CHECK)
    assert sorted(read(tmp_path / "out.jsonl"), key=lambda row: row["id"]) == before
    assert len(lm.requests) == 4


def test_changed_inputs_are_said_and_done_anew(batch, lm, tmp_path):
    source = write(tmp_path / "in.jsonl", tasks(4))
    batch(source, "out.jsonl", *CHECK)
    write(tmp_path / "in.jsonl", [*tasks(2), {"id": 2, "task": "say other"}, {"id": 9, "task": "say new"}])
    said = batch(source, "out.jsonl", *CHECK)
    assert "2 rows of out.jsonl had other inputs, or are not in" in said.stderr
    rows = {row["id"]: row["answer"] for row in read(tmp_path / "out.jsonl")}
    assert rows == {0: "word0", 1: "word1", 2: "other", 9: "new"}
    assert len(read(tmp_path / "out.jsonl")) == 4
    assert len(lm.requests) == 6


def test_changed_options_are_refused_before_anything_is_spent(batch, lm, tmp_path):
    source = write(tmp_path / "in.jsonl", tasks(2))
    batch(source, "out.jsonl", *CHECK)
    other = batch(source, "out.jsonl", "--check", "words:1-4", "-n", "2")
    assert (other.exit_code, len(lm.requests)) == (2, 2)
    assert (
        "begun with other options (--attempts was None, is 2; --check was ['words:1-3'], is ['words:1-4'])"
        in other.stderr
    )
    anew = batch(source, "out.jsonl", "--check", "words:1-4", "-n", "2", "--no-resume")
    assert (anew.exit_code, len(lm.requests)) == (0, 4)
    assert len(read(tmp_path / "out.jsonl")) == 2
    more = batch(source, "out.jsonl", "--check", "words:1-4", "-n", "2", "--concurrency", "1", "--item-call-limit", "9")
    assert (more.exit_code, len(lm.requests)) == (0, 4), "how it is limited and done is no part of what it is"


def test_a_file_that_no_batch_wrote_is_left_alone(batch, lm, tmp_path):
    source = write(tmp_path / "in.jsonl", tasks(2))
    out = tmp_path / "out.jsonl"
    for text in ('{"my": "data"}\n', "not json\n", "no line end"):
        out.write_text(text)
        said = batch(source, "out.jsonl", *CHECK)
        assert (said.exit_code, out.read_text(), lm.requests) == (2, text, [])
        assert "--no-resume to overwrite it" in said.stderr


def test_failed_rows_stay_and_are_tried_again_when_asked(redraft, named, tmp_path):
    source = write(tmp_path / "in.jsonl", tasks(3))
    good = FunctionLM(lambda request: "fine")
    lm = FaultyLM(good, [AuthError("no key", status=401)] * 2)
    command = ("batch", source, "out.jsonl", "--strategy", "predict", "--concurrency", "1", "-m", named(lm))
    said = redraft(*command)
    assert said.exit_code == 1
    rows = read(tmp_path / "out.jsonl")
    assert [row["error"] and row["error"].partition(":")[0] for row in rows] == ["AuthError", "AuthError", None]
    assert redraft(*command).exit_code == 1
    assert lm.calls == 3
    said = redraft(*command, "--retry-failed")
    assert (said.exit_code, lm.calls) == (0, 5)
    assert sorted(row["answer"] for row in read(tmp_path / "out.jsonl")) == ["fine"] * 3


def test_a_row_that_cannot_be_read_is_a_row_that_failed(batch, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"task": "say a"}\n{broken\n\n["list"]\n{"task": "say b"}\n')
    said = batch("in.jsonl", "out.jsonl", *CHECK, "--ordered")
    assert said.exit_code == 1
    rows = read(tmp_path / "out.jsonl")
    assert [row.get("answer") for row in rows] == ["a", None, None, "b"]
    assert rows[1]["input"] == "{broken"
    assert batch("in.jsonl", "out.jsonl", *CHECK).exit_code == 1
    assert len(read(tmp_path / "out.jsonl")) == 4


def test_a_missing_column_is_said_at_once(batch, lm, tmp_path):
    source = write(tmp_path / "in.jsonl", [{"question": "say a", "x": 1}])
    said = batch(source, "out.jsonl")
    assert (said.exit_code, lm.requests) == (2, [])
    assert "the first row has no column 'task', only 'question', 'x'" in said.stderr
    said = batch(source, "out.jsonl", *CHECK, "--signature", "question -> word")
    assert said.exit_code == 0
    assert read(tmp_path / "out.jsonl")[0]["word"] == "a"


def test_csv_in_and_out(batch, lm, tmp_path):
    with (tmp_path / "in.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([["id", "task"], ["1", "say one, two"], ["2", 'say "x"\ny'], ["3", "say ü"]])
    part = batch("in.csv", "out.csv", *CHECK, "--call-limit", "2", "--concurrency", "1")
    assert part.exit_code == 3
    assert len(_table(tmp_path / "out.csv")) == 2, "what is done can be looked at"
    assert batch("in.csv", "out.csv", *CHECK).exit_code == 0
    assert [(row["id"], row["answer"], row["passed"]) for row in _table(tmp_path / "out.csv")] == [
        ("1", "one, two", "true"),
        ("2", '"x"', "true"),
        ("3", "ü", "true"),
    ]
    assert not (tmp_path / "out.csv.rows.jsonl").exists()
    assert batch("in.csv", "out.csv", *CHECK).exit_code == 0
    assert len(lm.requests) == 3


def _table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.doors
def test_parquet_in_and_out(batch, tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        pa.Table.from_pylist([{"id": i, "task": f"say w{i}", "x": [i]} for i in range(3)]), "in.parquet"
    )
    assert batch("in.parquet", "out.parquet", *CHECK, "--ordered").exit_code == 0
    rows = parquet.read_table("out.parquet").to_pylist()
    assert [(row["id"], row["answer"], row["x"], row["score"]) for row in rows] == [
        (i, f"w{i}", f"[{i}]", 1.0) for i in range(3)
    ]


def test_another_ending_is_refused(batch, lm, tmp_path):
    source = write(tmp_path / "in.jsonl", tasks(1))
    said = batch(source, "out.xlsx")
    assert (said.exit_code, lm.requests) == (2, [])
    assert "neither JSON Lines (.jsonl) nor CSV" in said.stderr


def test_piped_in(batch, tmp_path):
    said = batch("-", "out.jsonl", *CHECK, input='{"task": "say hi"}\n')
    assert said.exit_code == 0
    assert read(tmp_path / "out.jsonl")[0]["answer"] == "hi"


def test_a_set_up_that_is_wrong_for_every_row_ends_it_at_once(redraft, tmp_path):
    source = write(tmp_path / "in.jsonl", tasks(50))
    lm = FunctionLM(lambda request: "x", price=None)
    said = redraft("batch", source, "out.jsonl", "--cost-limit", "1", "--concurrency", "1", lm=lm)
    assert (said.exit_code, lm.requests) == (2, [])
    assert "price of this model is not known" in said.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_quiet_says_nothing(batch, tmp_path):
    said = batch(write(tmp_path / "in.jsonl", tasks(2)), "out.jsonl", *CHECK, "-q")
    assert (said.exit_code, said.stdout, said.stderr) == (0, "", "")


@pytest.mark.server
class TestSignals:
    def test_the_first_one_drains_and_the_next_invocation_goes_on(self, start, until, stopped, tmp_path):
        write(tmp_path / "in.jsonl", tasks(30))
        with FaultServer(lambda asked: Reply(text="fine", delay=0.15)) as server:
            command = ("batch", "in.jsonl", "out.jsonl", "--strategy", "predict", "--concurrency", "4")
            command = (*command, "-m", "test", "--base-url", server.base_url)
            process = start(*command)
            until(lambda: server.calls >= 6)
            code, _, err, _ = stopped(process)
            assert code == 130
            assert "no further rows are begun" in err
            assert server.aborted == 0
            assert len(read(tmp_path / "out.jsonl")) == server.calls
            calls = server.calls
            again = start(*command)
            _, err = again.communicate(timeout=30)
            assert again.returncode == 0, err
            assert len(read(tmp_path / "out.jsonl")) == server.calls == 30
            assert calls < 30

    def test_the_second_one_leaves_what_is_under_way_for_the_next_time(self, start, until, stopped, tmp_path):
        write(tmp_path / "in.jsonl", tasks(6))
        slow = {"on": True}
        with FaultServer(lambda asked: Reply(text="fine", delay=30 if slow["on"] else 0)) as server:
            command = ("batch", "in.jsonl", "out.jsonl", "--strategy", "predict", "--concurrency", "2")
            command = (*command, "-m", "test", "--base-url", server.base_url)
            process = start(*command)
            until(lambda: server.calls == 2)
            process.send_signal(signal.SIGINT)
            assert "no further rows" in process.stderr.readline()
            code, _, err, seconds = stopped(process)
            assert (code, seconds < 3) == (130, True), err
            assert "0 rows done" in err
            slow["on"] = False
            again = start(*command)
            _, err = again.communicate(timeout=30)
            assert again.returncode == 0, err
            assert server.calls == 2 + 6
            assert "8 calls" in err, "those that were cut off are counted"

    def test_a_killed_run_is_resumed_by_its_id(self, start, until, tmp_path):
        replies = iter(["too many words for this", Reply(text="never", delay=30), "fine"])
        with FaultServer(lambda asked: next(replies)) as server:
            process = start("run", "Say", *CHECK, "--store", "r.db", "-m", "test", "--base-url", server.base_url)
            until(lambda: server.calls == 2)
            process.kill()
            process.communicate()
            out, _ = start("runs", "list", "--json", "--store", "r.db").communicate(timeout=20)
            run_id = json.loads(out)["runs"][0]["run_id"]
            again = start("resume", run_id[:12], "--store", "r.db")
            out, err = again.communicate(timeout=20)
        assert (again.returncode, out) == (0, "fine\n"), err
        assert server.calls == 3
        assert "draft 1   x 5 words" in err
        assert "3 calls" in err


def test_resume_goes_on_where_a_limit_ended_it(redraft, named, tmp_path):
    replies = ["far too many words", "again too many words", "fine"]
    lm = ScriptedLM(replies, name="scripted")
    first = redraft("run", "Say", *CHECK, "--store", "r.db", "--call-limit", "2", "-m", named(lm))
    assert first.exit_code == 4
    run_id = re.search(r"`redraft resume (\S+) --store r.db` goes on", first.stderr)[1]
    again = redraft("resume", run_id, "--store", "r.db", "--call-limit", "3")
    assert (again.exit_code, again.stdout, lm.left) == (0, "fine\n", 0)
    third = redraft("resume", run_id, "--store", "r.db")
    assert (third.exit_code, third.stdout) == (0, "fine\n"), "a run that has ended is shown again"


def test_a_resume_that_fails_midway_costs_nothing_that_was_paid(redraft, named, tmp_path):
    lm = ScriptedLM(
        ["far too many words", TransientLMError("down"), "again too many words", AuthError("key", status=401), "fine"]
    )
    first = redraft("run", "Say", *CHECK, "--store", "r.db", "--call-limit", "1", "-m", named(lm))
    run_id = re.search(r"redraft resume (\S+)", first.stderr)[1]
    second = redraft("resume", run_id, "--store", "r.db", "--call-limit", "3")
    assert second.exit_code == 4
    third = redraft("resume", run_id, "--store", "r.db")
    assert (third.exit_code, lm.left) == (4, 1), "the key was refused: the best so far"
    fourth = redraft("resume", run_id, "--store", "r.db", "--json")
    assert (fourth.exit_code, lm.left) == (0, 0), "a key can be mended"
    assert json.loads(fourth.stdout)["text"] == "fine"
    assert json.loads(fourth.stdout)["usage"]["calls"] == len(lm.requests) == 5


def test_changed_checks_are_said_on_a_resume(redraft, lm, named, tmp_path):
    (tmp_path / "c.py").write_text("from redraft import check\n\n@check\ndef short(text):\n    return len(text) < 5\n")
    first = redraft(
        "run", "say word1", "--checks", "c.py", "-n", "2", "--store", "r.db", "--call-limit", "1", "-m", named(lm)
    )
    run_id = re.search(r"redraft resume (\S+)", first.stderr)[1]
    (tmp_path / "c.py").write_text("from redraft import check\n\n@check\ndef short(text):\n    return len(text) < 9\n")
    again = redraft("resume", run_id, "--store", "r.db")
    assert again.exit_code == 0
    assert "changed   since the run began: code" in again.stderr


def test_resume_says_what_it_cannot_go_on_with(redraft, batch, tmp_path):
    assert "there is no such file" in redraft("resume", "x", "--store", "none.db").stderr
    batch(write(tmp_path / "in.jsonl", tasks(1)), "out.jsonl", *CHECK, "--batch-id", "mine")
    said = redraft("resume", "mine:0", "--store", "out.jsonl.runs.db")
    assert (said.exit_code, "part of a batch" in said.stderr) == (2, True)
    assert "no run 'nope'" in redraft("resume", "nope", "--store", "out.jsonl.runs.db").stderr


def test_half_an_emoji_ends_no_batch(batch, lm, tmp_path):
    rows = [{"id": "\ud83d", "task": "say one"}, {"id": 2, "task": "say half \ud83d", "note": "\ud83d cut"}, *tasks(1)]
    source = write(tmp_path / "in.jsonl", rows)
    for calls in (3, 3):
        said = batch(source, "out.jsonl", "--strategy", "predict")
        assert (said.exit_code, len(lm.requests)) == (0, calls)
    assert [row["answer"] for row in read(tmp_path / "out.jsonl")].count("half \ud83d") == 1


def test_one_process_works_on_a_file_at_a_time(batch, lm, tmp_path):
    source = write(tmp_path / "in.jsonl", tasks(1))
    with alone("in.jsonl", str(tmp_path / "out.jsonl")):
        said = batch(source, str(tmp_path / "out.jsonl"))
    assert (said.exit_code, lm.requests) == (2, [])
    assert "another process works on" in said.stderr
    assert batch(source, str(tmp_path / "out.jsonl"), *CHECK).exit_code == 0
    assert not (tmp_path / "out.jsonl.lock").exists()


@pytest.mark.parametrize("out", ["in.jsonl", "nowhere/out.jsonl", "-"])
def test_nothing_is_bought_for_a_file_that_cannot_be_written(batch, lm, tmp_path, out):
    source = write(tmp_path / "in.jsonl", tasks(1))
    before = (tmp_path / "in.jsonl").read_text()
    said = batch(source, out, "--no-resume", "--store", "runs.db")
    assert (said.exit_code, lm.requests) == (2, [])
    assert (tmp_path / "in.jsonl").read_text() == before


def test_rows_with_a_time_as_run_id_are_nobodys_batch(batch, lm, tmp_path):
    write(tmp_path / "out.jsonl", [{"run_id": "2024-01-01T10:00:00", "x": 1}])
    said = batch(write(tmp_path / "in.jsonl", tasks(1)), "out.jsonl")
    assert (said.exit_code, lm.requests) == (2, [])
    assert "something else than a batch's rows" in said.stderr
