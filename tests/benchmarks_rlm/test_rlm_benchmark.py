"""The benchmark's own promises: the same bytes again, answers that a second way of counting confirms, noise as asked for."""

import importlib
import json
import sys
from types import SimpleNamespace

import pytest

NAMES = ("banks", "generate", "tasks", "oracle", "grading")


@pytest.fixture(scope="module")
def bench(request):
    folder = str(request.config.rootpath / "benchmarks" / "rlm")
    sys.path.insert(0, folder)
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
    finally:
        sys.path.remove(folder)
        for name in NAMES:
            del sys.modules[name]


def tasks_of(bench):
    return bench.tasks.TASKS.values()


def read_whole(bench, task, path, gold, **options):
    oracle = bench.oracle.Oracle(task, gold, **options)
    oracle.window = 10**9
    prompt = bench.oracle.direct_prompt(task, task.query(gold), path.read_text())
    return json.loads(oracle.reply("direct", [{"role": "user", "content": prompt}]))


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(bench, tmp_path):
    for task in tasks_of(bench):
        made = []
        for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
            path, gold = bench.generate.make(task.name, 20_000, seed, tmp_path / folder)
            made.append((path.read_bytes(), gold))
        assert made[0] == made[1]
        assert made[0][0] != made[2][0]


def test_a_file_is_as_large_as_asked_but_for_a_record(bench, tmp_path):
    for task in tasks_of(bench):
        path, _ = bench.generate.make(task.name, 50_000, 3, tmp_path)
        assert 49_000 < path.stat().st_size <= 50_000


@pytest.mark.parametrize("size", [1_000, 60_000])
def test_what_was_put_in_is_what_the_cells_count(bench, tmp_path, size):
    for task in tasks_of(bench):
        for seed in (1, 2, 3):
            path, gold = bench.generate.make(task.name, size, seed, tmp_path)
            assert bench.grading.grade(task, read_whole(bench, task, path, gold), gold) == (True, 1.0), (
                task.name,
                seed,
            )


def test_every_sentence_has_its_label_back(bench):
    import random

    draw = bench.generate.Draw(random.Random(1), 1)
    for bank in (bench.banks.REVIEWS, bench.banks.QUESTIONS, bench.banks.CLOSINGS):
        for label, stems in bank.items():
            for stem in stems:
                for opener in bench.banks.OPENERS:
                    assert bench.banks.label(draw.fill(f"{opener} {stem}".strip(), "kettle")) == label


def test_the_oracle_errs_as_often_as_it_is_told_and_the_same_way_again(bench, tmp_path):
    task = bench.tasks.TASKS["oolong"]
    noise = bench.oracle.Noise(label=0.2, malformed=0.1, empty=0.1)
    oracle = bench.oracle.Oracle(task, {}, noise=noise, seed=1)
    kinds = list(bench.banks.QUESTIONS)
    lines = "\n".join(f"{i}. How far is it from Oslo to the sea?" for i in range(1, 101))
    head = bench.tasks.LABEL.format(labels=", ".join(kinds))
    prompts = [f"{head} ({n})\n\n{lines}" for n in range(300)]
    said = [oracle.sub(prompt) for prompt in prompts]
    assert said == [oracle.sub(prompt) for prompt in prompts]
    labels = [line.split(": ")[1] for reply in said for line in reply.splitlines() if line[:1].isdigit()]
    assert 0.17 < sum(label != "numeric" for label in labels) / len(labels) < 0.23
    assert 10 < said.count("") < 60
    assert 10 < sum(reply.startswith("Of course") for reply in said) < 60


def test_lost_and_malformed_replies_cost_more_calls_and_no_answer(bench, tmp_path):
    task = bench.tasks.TASKS["oolong"]
    path, gold = bench.generate.make("oolong", 60_000, 1, tmp_path)
    said = read_whole(bench, task, path, gold, noise=bench.oracle.Noise(malformed=0.2, empty=0.1), seed=4)
    assert bench.grading.grade(task, said, gold) == (True, 1.0)


def test_a_direct_call_does_not_know_what_it_was_not_shown(bench, tmp_path):
    task = bench.tasks.TASKS["sales"]
    path, gold = bench.generate.make("sales", 60_000, 1, tmp_path)
    oracle = bench.oracle.Oracle(task, gold)
    oracle.window = 8_000
    prompt = bench.oracle.direct_prompt(task, task.query(gold), path.read_text())
    exact, share = bench.grading.grade(
        task, json.loads(oracle.reply("direct", [{"role": "user", "content": prompt}])), gold
    )
    assert not exact
    assert 0.4 < share < 0.6


def test_the_root_goes_on_from_what_it_sees_and_writes_a_failed_cell_again(bench):
    task = bench.tasks.TASKS["sales"]
    oracle = bench.oracle.Oracle(task, {})
    prompt, seen = {"role": "user", "content": "go"}, {"role": "user", "content": "explored: str 12 characters"}
    first, second = oracle.reply("root", [prompt]), oracle.reply("root", [prompt, seen])
    assert 'print("explored:"' in first
    assert "csv.reader" in second
    failed = {"role": "user", "content": "Traceback: ValueError"}
    assert oracle.reply("root", [prompt, seen, {"role": "assistant", "content": second}, failed]) == second
    assert oracle.ledger.calls["root"] == 3
