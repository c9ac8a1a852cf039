"""A batch's second invocation: failed rows asked again, finished tables read again, a store that was lost, odd input."""

import csv
import itertools
import json
import signal
from collections import Counter

import pytest

from redraft import registry
from redraft.config import close_stores
from redraft.errors import BadRequestError
from redraft.testing import FaultServer, FunctionLM, Reply

NUMBERS = itertools.count()
KINDS = ["jsonl", "csv", pytest.param("parquet", marks=pytest.mark.doors)]


class Moody(FunctionLM):
    """Refuses what it is told to refuse, and says `word7` of a task `say word7`."""

    def __init__(self):
        super().__init__(self._say, name="moody")
        self.refuses = set()
        self.garbled = set()
        self.asked = Counter()

    def _say(self, request):
        word = str(request.messages[-1]["content"]).rpartition("say ")[2].split()[0].strip('"')
        self.asked[word] += 1
        if word in self.refuses:
            raise BadRequestError(f"{word} is refused", status=400)
        return "no number" if word in self.garbled else word


@pytest.fixture
def lm():
    return Moody()


@pytest.fixture
def batch(redraft, lm):
    name = str(next(NUMBERS))
    registry.register("models", "moody", lambda wanted, base_url=None: {name: lm}[wanted])

    def call(*args, **more):
        said = redraft("batch", "-m", f"moody/{name}", "--strategy", "predict", "--concurrency", "1", *args, **more)
        close_stores()  # as the process does when it ends
        return said

    yield call
    del registry._KNOWN["models"]["moody"]


def source(tmp_path, words, kind="jsonl"):
    path = tmp_path / f"in.{kind}"
    if kind == "csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([["id", "task"], *[[n, f"say {word}"] for n, word in enumerate(words)]])
    elif kind == "parquet":
        pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(
            pa.Table.from_pylist([{"id": n, "task": f"say {word}"} for n, word in enumerate(words)]), path
        )
    else:
        path.write_text("".join(json.dumps({"id": n, "task": f"say {w}"}) + "\n" for n, w in enumerate(words)))
    return str(path)


def read(path):
    from redraft.batch.files import read_rows

    return {int(row["id"]): row for row in read_rows(str(path))}


@pytest.mark.parametrize("kind", KINDS)
def test_failed_rows_stay_failed_until_they_are_to_be_tried_again(batch, lm, tmp_path, kind):
    out = f"out.{kind}"
    given = source(tmp_path, ["a", "b", "c"], kind)
    lm.refuses = {"b"}
    assert batch(given, out).exit_code == 1
    assert "BadRequestError: b is refused" in read(out)[1]["error"]
    assert batch(given, out).exit_code == 1
    assert lm.asked == {"a": 1, "b": 1, "c": 1}, "the second invocation has nothing to do"
    assert batch(given, out, "--retry-failed").exit_code == 1
    assert lm.asked == {"a": 1, "b": 2, "c": 1}
    lm.refuses = set()
    said = batch(given, out, "--retry-failed")
    assert said.exit_code == 0
    assert "3 rows done, 3 passed, 0 failed" in said.stderr
    assert [read(out)[n]["answer"] for n in range(3)] == ["a", "b", "c"]
    assert lm.asked == {"a": 1, "b": 3, "c": 1}


def test_a_refusal_replays_only_where_nobody_asks_for_another_try(batch, lm, tmp_path):
    given = source(tmp_path, ["a", "b"])
    lm.refuses = {"b"}
    batch(given, "out.jsonl")
    (tmp_path / "out.jsonl").unlink()
    assert batch(given, "out.jsonl").exit_code == 1
    assert lm.asked == {"a": 1, "b": 1}


def test_a_row_that_an_error_ended_has_not_passed_and_is_tried_again(redraft, lm, batch, tmp_path):
    """Its critic has no verdict: the best so far is there, and nothing has judged it."""
    given = source(tmp_path, ["a"])
    assert batch(given, "out.jsonl", "--strategy", "self-refine").exit_code == 4
    row = read(tmp_path / "out.jsonl")[0]
    assert (row["answer"], row["stop_reason"], row["passed"]) == ("a", "error", False)
    asked = sum(lm.asked.values())
    assert batch(given, "out.jsonl", "--strategy", "self-refine", "--retry-failed").exit_code == 4
    assert sum(lm.asked.values()) > asked


def test_rows_whose_replies_had_no_form_are_asked_anew(batch, lm, tmp_path):
    given = source(tmp_path, ["1", "2"])
    lm.garbled = {"2"}
    assert batch(given, "out.jsonl", "--signature", "task -> n: int").exit_code == 1
    asked = lm.asked["2"]
    lm.garbled = set()
    assert batch(given, "out.jsonl", "--signature", "task -> n: int", "--retry-failed").exit_code == 0
    assert (lm.asked["1"], lm.asked["2"]) == (1, asked + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_file_is_enough_to_go_on_with(batch, lm, tmp_path, kind):
    out = f"out.{kind}"
    given = source(tmp_path, ["a", "b"], kind)
    batch(given, out)
    before = read(out)
    (tmp_path / f"{out}.runs.db").unlink()
    given = source(tmp_path, ["a", "b", "c"], kind)
    assert batch(given, out).exit_code == 0
    assert lm.asked == {"a": 1, "b": 1, "c": 1}
    assert {n: read(out)[n] for n in before} == before


def test_begun_afresh_once_its_rows_outlive_a_lost_store(batch, lm, tmp_path):
    given = source(tmp_path, ["a", "b"])
    batch(given, "out.jsonl")
    assert batch(given, "out.jsonl", "--no-resume").exit_code == 0
    assert lm.asked == {"a": 2, "b": 2}
    (tmp_path / "out.jsonl.runs.db").unlink()
    given = source(tmp_path, ["a", "b", "c"])
    for _ in range(2):
        said = batch(given, "out.jsonl")
        assert (said.exit_code, "left out" in said.stderr) == (0, False)
        assert lm.asked == {"a": 2, "b": 2, "c": 1}
    (tmp_path / "out.jsonl").unlink()
    assert batch(given, "out.jsonl").exit_code == 0
    assert lm.asked["c"] == 1, "the new store knows how its runs are named"


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_begun_afresh_and_stopped_nothing_of_before_comes_back(batch, lm, tmp_path, kind):
    given = source(tmp_path, ["a", "b"], kind)
    batch(given, f"out.{kind}")
    assert batch(given, f"out.{kind}", "--no-resume", "--call-limit", "1").exit_code == 3
    assert len(read(tmp_path / f"out.{kind}")) == 1
    assert batch(given, f"out.{kind}").exit_code == 0
    assert lm.asked == {"a": 2, "b": 2}


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_table_that_no_batch_wrote_is_left_alone(batch, lm, tmp_path, kind):
    text = {"csv": "a,b\n1,2\n", "jsonl": '{"a": 1}\n'}[kind]
    (tmp_path / f"out.{kind}").write_text(text)
    said = batch(source(tmp_path, ["a"]), f"out.{kind}")
    assert (said.exit_code, lm.asked, (tmp_path / f"out.{kind}").read_text()) == (2, {}, text)
    assert "--no-resume to overwrite it" in said.stderr


def test_what_three_batches_in_a_row_have_written_is_all_there(batch, tmp_path):
    given = source(tmp_path, ["a"])
    for n in range(1, 4):
        assert batch(given, f"out{n}.jsonl").exit_code == 0
        given = f"out{n}.jsonl"
    (row,) = read(tmp_path / "out3.jsonl").values()
    names = [name for name in row if name.endswith("run_id")]
    assert sorted(names) == ["input.input.run_id", "input.run_id", "run_id"]
    assert len({row[name] for name in names}) == 3


def test_a_byte_order_mark_is_no_part_of_the_first_row(batch, tmp_path):
    text = '\ufeff{"id": 0, "task": "say ü"}\n{"id": 1, "task": "say b"}\n'
    said = batch("-", "out.jsonl", input=text.encode())
    assert (said.exit_code, [row["answer"] for row in read(tmp_path / "out.jsonl").values()]) == (0, ["ü", "b"])


@pytest.mark.parametrize("levels", [150, 300, 900, 5000, 100_000])
def test_a_row_that_nests_deeply_is_done_or_failed_and_ends_nothing(batch, lm, tmp_path, levels):
    rows = ['{"id": 0, "task": "say a"}', f'{{"id": 1, "task": "say b", "x": {"[" * levels}{"]" * levels}}}']
    (tmp_path / "in.jsonl").write_text("\n".join(rows) + "\n")
    assert batch("in.jsonl", "out.jsonl").exit_code == (0 if levels < 200 else 1)
    assert batch("in.jsonl", "out.jsonl").exit_code == (0 if levels < 200 else 1)
    assert lm.asked["a"] == 1
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["error"] is None for row in lines] == [True, levels < 200]


def test_a_number_that_is_none_inside_a_row_is_said(batch, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"id": 0, "task": ["say a", {"x": NaN}]}\n{"id": 1, "task": "say b"}\n')
    assert batch("in.jsonl", "out.jsonl").exit_code == 1
    rows = [json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert "the input 'task' holds nan" in rows[0]["error"]
    assert rows[1]["answer"] == "b"


def test_the_batch_and_its_items_are_listed_as_what_they_are(batch, redraft, lm, tmp_path):
    given = source(tmp_path, ["a", "b", "c"])
    batch(given, "out.jsonl", "--batch-id", "mine", "--call-limit", "1")

    def listed():
        said = redraft("runs", "list", "--json", "--store", "out.jsonl.runs.db")
        return {run["run_id"]: (run["stop"], run["ended"] is not None) for run in json.loads(said.stdout)["runs"]}

    assert listed()["mine"] == ("budget", True)
    batch(given, "out.jsonl", "--batch-id", "mine")
    found = listed()
    assert found.pop("mine") == ("done", True)
    assert len(found) == 3
    assert all(ended for _, ended in found.values())


@pytest.mark.server
def test_a_run_is_resumed_by_one_process_at_a_time(start, until, tmp_path):
    slow = {"on": True}
    with FaultServer(lambda asked: Reply(text="fine", delay=60 if slow["on"] else 0)) as server:
        where = ("--store", "r.db")
        first = start("run", "Say", "--check", "words:1", *where, "-m", "test", "--base-url", server.base_url)
        until(lambda: server.calls == 1)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        out, _ = start("runs", "list", "--json", *where).communicate(timeout=30)
        (run,) = json.loads(out)["runs"]
        one = start("resume", run["run_id"], *where)
        until(lambda: server.calls == 2)
        two = start("resume", run["run_id"], *where)
        _, said = two.communicate(timeout=30)
        assert (two.returncode, server.calls) == (1, 2), said
        assert "is at work in another process" in said
        assert "nothing was bought" in said
        one.kill()
        one.communicate()
        slow["on"] = False
        three = start("resume", run["run_id"], *where)
        out, said = three.communicate(timeout=30)
        assert (three.returncode, out) == (0, "fine\n"), said
