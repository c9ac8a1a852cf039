"""Models from a Hugging Face hub: the real huggingface_hub against a hub on the loopback."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

pytest.importorskip("huggingface_hub")

from click.testing import CliRunner
from loopback_hub import COMMIT, OLD, Hub, Repo, gguf, llama
from loopback_hub import _send as send

from redraft import config
from redraft.cli import main
from redraft.config import resolve_lm
from redraft.errors import ConfigError, ModelFetchError, UnknownNameError
from redraft.lm import catalogue, hub, hub_client, machine
from redraft.lm.hub import parse

pytestmark = pytest.mark.doors

TINY, PARTS = llama(), {f"q8/big-0000{i}-of-00003.gguf": llama(padding=10_000 * i) for i in (1, 2, 3)}


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A hub with a few repositories, and an empty cache."""
    served = Hub()
    card = {"license": "other", "license_name": "tiny-community"}
    served.repos = {
        "acme/tiny-GGUF": Repo({"tiny-q4.gguf": TINY, "README.md": b"#", "mmproj-tiny.gguf": gguf()}, card),
        "acme/parts-GGUF": Repo({**PARTS, "small.gguf": gguf(10)}, tags=("gguf", "license:mit")),
        "acme/gated-GGUF": Repo({"g.gguf": TINY}, {"license": "llama3.2"}, gated=True),
        "acme/private-GGUF": Repo({"p.gguf": TINY}, private=True),
        "acme/plain": Repo({"model.safetensors": b"..."}),
        "acme/lies-GGUF": Repo({"page.gguf": b"<html>not found</html>"}),
    }
    for name in [n for n in os.environ if n.startswith(("HF_", "REDRAFT_LOCAL"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_ENDPOINT", served.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(config, "_lms", {})
    monkeypatch.setattr(config, "_resolved", {})
    yield served
    served.close()


def redraft(*args, **more):
    return CliRunner().invoke(main, args, **more)


def pull(spec, progress=None):
    return hub_client.fetch(hub_client.offer(parse(spec)), progress)


def left(tmp_path):
    """All files under the cache."""
    return sorted(path.name for path in (tmp_path / "cache").rglob("*") if path.is_file())


def test_a_pull_says_what_it_takes_and_then_the_model_has_a_name(there, tmp_path):
    said = redraft("models", "pull", "hf:acme/tiny-GGUF/tiny-q4.gguf")
    assert said.exit_code == 0
    file = tmp_path / "cache/models/hub/acme/tiny-GGUF/tiny-q4.gguf"
    assert said.stdout == f"{file}\n"
    assert file.read_bytes() == TINY
    assert "licence  tiny-community" in said.stderr
    assert "memory   about 217 MB" in said.stderr  # the file, 4 x 4,096 tokens of 1,024 bytes, 200 MB of work space
    assert "trained for 8,192 tokens" in said.stderr
    assert "-m local/acme/tiny-GGUF/tiny-q4.gguf" in said.stderr
    assert "local/acme/tiny-GGUF/tiny-q4.gguf  0 MB  tiny-community  here" in redraft("models", "list").stdout
    assert redraft("models", "path", "local/acme/tiny-GGUF/tiny-q4.gguf").stdout == f"{file}\n"
    lm = resolve_lm("local/acme/tiny-GGUF/tiny-q4.gguf")
    assert (lm.name, lm._spec.path) == ("local/acme/tiny-GGUF/tiny-q4.gguf", file)


def test_what_is_here_is_not_fetched_again_unless_it_is_damaged(there):
    path = pull("hf:acme/tiny-GGUF/tiny-q4.gguf")
    fetched = len(there.contents_sent())
    assert pull("acme/tiny-GGUF/tiny-q4.gguf") == path
    assert len(there.contents_sent()) == fetched == 1
    path.write_bytes(b"GGUF" + bytes(len(TINY) - 4))
    assert pull("hf:acme/tiny-GGUF/tiny-q4.gguf").read_bytes() == TINY


def test_a_repository_alone_is_listed_and_nothing_is_fetched(there, tmp_path):
    said = redraft("models", "pull", "hf:acme/parts-GGUF")
    assert said.exit_code == 0
    assert [line.split()[-1] for line in said.stdout.splitlines()] == [
        "hf:acme/parts-GGUF/q8/big-00001-of-00003.gguf",
        "hf:acme/parts-GGUF/small.gguf",
    ]
    assert left(tmp_path) == there.contents_sent() == []
    assert "mmproj" not in redraft("models", "pull", "hf:acme/tiny-GGUF").stdout
    assert "holds no GGUF file" in redraft("models", "pull", "hf:acme/plain").stderr


def test_a_model_in_parts_comes_whole_by_the_name_of_its_first_part(there, tmp_path):
    seen = []
    path = pull("hf:acme/parts-GGUF/q8/big-00002-of-00003.gguf", lambda done, total: seen.append((done, total)))
    assert path.name == "big-00001-of-00003.gguf"
    assert {p.name: p.read_bytes() for p in path.parent.glob("*.gguf")} == {k[3:]: v for k, v in PARTS.items()}
    whole = sum(map(len, PARTS.values()))
    assert seen[-1] == (whole, whole)
    (model,) = hub.pulled()
    assert (str(model.name), model.size, model.licence) == ("acme/parts-GGUF/q8/big-00001-of-00003.gguf", whole, "mit")
    path.with_name("big-00003-of-00003.gguf").unlink()
    assert hub.pulled() == [], "a model that lacks a part is none"
    before = len(there.contents_sent())
    assert pull(str(model.name)) == path
    assert len(there.contents_sent()) == before + 1, "only the missing part was fetched"


def test_another_revision_is_another_model(there):
    main_one, old = pull("hf:acme/tiny-GGUF/tiny-q4.gguf"), pull("hf:acme/tiny-GGUF@v1/tiny-q4.gguf")
    assert old.parent.name == "tiny-GGUF@v1"
    assert main_one != old
    assert pull("hf:acme/tiny-GGUF@refs%2Fpr%2F1/tiny-q4.gguf").parent.name == "tiny-GGUF@refs%2Fpr%2F1"
    asked = {path.split("/")[4] for _, path, _, _ in there.log if "/resolve/" in path}
    assert asked == {COMMIT, OLD}, "what was described is what is fetched, also if the branch moves meanwhile"
    assert [str(model.name) for model in hub.pulled()] == [
        "acme/tiny-GGUF/tiny-q4.gguf",
        "acme/tiny-GGUF@refs%2Fpr%2F1/tiny-q4.gguf",
        "acme/tiny-GGUF@v1/tiny-q4.gguf",
    ]


def test_a_token_reads_what_is_private_and_never_leaves_for_the_content_servers(there, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    assert pull("hf:acme/private-GGUF/p.gguf").read_bytes() == TINY
    pull("hf:acme/gated-GGUF/g.gguf")
    assert {token for _, path, _, token in there.log if path.startswith("/cdn/")} == {None}
    assert {token for _, path, _, token in there.log if "acme/" in path} == {"Bearer hf_good"}


def test_a_broken_connection_goes_on_where_it_broke(there, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    there.cut = 10_500
    assert pull("hf:acme/tiny-GGUF/tiny-q4.gguf").read_bytes() == TINY
    assert there.contents_sent() == [None, "bytes=10000-"]


def test_several_may_pull_the_same_at_once(there, tmp_path):
    wanted = hub_client.offer(parse("hf:acme/tiny-GGUF/tiny-q4.gguf"))
    with ThreadPoolExecutor(8) as pool:
        came = list(pool.map(lambda _: hub_client.fetch(wanted), range(40)))
    assert {path.read_bytes() for path in came} == {TINY}
    assert left(tmp_path) == ["tiny-q4.gguf", "tiny-q4.gguf.json"]


def swapped(**changes):
    return lambda said: {**said, "siblings": [{**said["siblings"][0], **changes}]}


ODD = {
    "a list": lambda said: [],
    "nothing": lambda said: None,
    "no files": lambda said: {**said, "siblings": None},
    "files in a text": lambda said: {**said, "siblings": "abc"},
    "a number for a tag": lambda said: {**said, "tags": [5]},
    "a text for a size": swapped(size="12"),
    "less than nothing": swapped(size=-5),
    "no hash": swapped(lfs={"size": 5}),
    "a number for a name": swapped(rfilename=7),
    "a way out": swapped(rfilename="../../tiny-q4.gguf"),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_hub_that_answers_oddly_is_explained(there, tmp_path, monkeypatch, odd):
    monkeypatch.setattr(
        "loopback_hub._send",
        lambda web, status, said, *more: send(web, status, odd(said) if "siblings" in said else said, *more),
    )
    result = redraft("models", "pull", "hf:acme/tiny-GGUF/tiny-q4.gguf")
    assert result.exit_code == 1
    assert "acme/tiny-GGUF" in result.output
    assert "bug" not in result.output
    assert left(tmp_path) == []


def test_what_a_repository_says_of_itself_does_not_steer_the_terminal(there):
    names = {"a\x1b[31m.gguf": TINY, "../../b.gguf": TINY, "good.gguf": TINY}
    there.repos["acme/paint-GGUF"] = Repo(names, {"license": "mit\x1b[2J\n\x07"})
    shown = redraft("models", "pull", "hf:acme/paint-GGUF").output
    shown += redraft("models", "pull", "hf:acme/paint-GGUF/good.gguf").output
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "licence  mit[2J\n" in shown
    assert "b.gguf" not in shown


def test_what_arrives_damaged_is_not_kept(there, tmp_path):
    offer = hub_client.offer(parse("hf:acme/tiny-GGUF/tiny-q4.gguf"))
    there.swapped = TINY[:-1] + b"?"
    with pytest.raises(ModelFetchError, match="arrived damaged"):
        hub_client.fetch(offer)
    assert left(tmp_path) == []


def test_an_interrupted_fetch_leaves_nothing_and_the_next_one_works(there, tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("hf:acme/tiny-GGUF/tiny-q4.gguf", interrupt)
    assert left(tmp_path) == []
    assert pull("hf:acme/tiny-GGUF/tiny-q4.gguf").read_bytes() == TINY
    assert left(tmp_path) == ["tiny-q4.gguf", "tiny-q4.gguf.json"]


def test_a_file_of_the_hubs_own_cache_is_taken_from_there(there):
    from huggingface_hub import hf_hub_download

    hf_hub_download("acme/tiny-GGUF", "tiny-q4.gguf", endpoint=there.url)
    before = len(there.contents_sent())
    assert pull("hf:acme/tiny-GGUF/tiny-q4.gguf").read_bytes() == TINY
    assert len(there.contents_sent()) == before


def test_a_xet_download_is_counted_once_though_it_feeds_two_bars(there, tmp_path):
    from huggingface_hub.utils._xet_progress_reporting import XetDownloadProgressReporter

    seen = []
    total = hub_client._Sum(100, lambda done, whole: seen.append(done))
    bar = hub_client._bar(lambda done: total.part(done, tmp_path))
    rates = {"total_bytes_completion_rate": 1.0, "total_transfer_bytes_completion_rate": None, "total_bytes": 100}
    with XetDownloadProgressReporter(reconstruction_desc="x", total=100, log_level=20, tqdm_class=bar) as reporter:
        for written, received in ((0, 30), (50, 60), (100, 70)):
            counted = {"total_bytes_completed": written, "total_transfer_bytes_completed": received}
            reporter.update_progress(SimpleNamespace(**counted, **rates))
    assert seen == [30, 50, 60, 100]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("hf:acme/gated-GGUF/g.gguf", r"is gated: accept its terms at http.*/acme/gated-GGUF.*HF_TOKEN"),
        ("hf:acme/private-GGUF/p.gguf", "shows no model repository acme/private-GGUF.*private.*HF_TOKEN"),
        ("hf:acme/nothing/x.gguf", "shows no model repository acme/nothing: check the name"),
        ("hf:acme/tiny-GGUF@v9/tiny-q4.gguf", "has no revision 'v9'"),
        ("hf:acme/tiny-GGUF/tiny-q5.gguf", "has no file tiny-q5.gguf. Did you mean hf:acme/tiny-GGUF/tiny-q4.gguf"),
        ("hf:acme/plain/x.gguf", "holds no GGUF file at all"),
        ("hf:acme/lies-GGUF/page.gguf", "is not a GGUF model"),
    ],
)
def test_what_cannot_be_had_is_explained(there, tmp_path, spec, says):
    with pytest.raises(ModelFetchError, match=says) as caught:
        pull(spec)
    assert "\n" not in str(caught.value)
    assert left(tmp_path) == []


def test_no_hub_in_reach_is_explained(there, monkeypatch):
    there.close()
    with pytest.raises(ModelFetchError, match=r"could not be fetched from http.*Is this machine online"):
        pull("hf:acme/tiny-GGUF/tiny-q4.gguf")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelFetchError, match="HF_HUB_OFFLINE is set"):
        pull("hf:acme/tiny-GGUF/tiny-q4.gguf")


def test_a_full_disk_is_known_before_the_fetch(there, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(ModelFetchError, match="Free some space there, or set REDRAFT_CACHE"):
        pull("hf:acme/tiny-GGUF/tiny-q4.gguf")
    assert left(tmp_path) == there.contents_sent() == []


def test_what_does_not_fit_is_not_fetched_unasked(there, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "memory", lambda: machine.Memory(200_000_000, 100_000_000))
    said = redraft("models", "pull", "hf:acme/tiny-GGUF/tiny-q4.gguf")
    assert said.exit_code == 2
    assert "needs about 217 MB of memory, 100 MB are free here" in said.stderr
    assert left(tmp_path) == []
    assert redraft("models", "pull", "hf:acme/tiny-GGUF/tiny-q4.gguf", "--yes").exit_code == 0


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_a_person_at_a_terminal_is_asked(there, tmp_path, answer, code):
    import pty

    person, terminal = pty.openpty()
    try:
        os.write(person, f"{answer}\n".encode())
        command = [sys.executable, "-m", "redraft", "models", "pull", "hf:acme/tiny-GGUF/tiny-q4.gguf"]
        done = subprocess.run(command, stdin=terminal, stderr=terminal, stdout=subprocess.PIPE, check=False, timeout=60)
        shown = os.read(person, 1 << 16).decode()
    finally:
        os.close(person)
        os.close(terminal)
    assert done.returncode == code
    assert "Fetch it? [Y/n]" in shown
    assert ("tiny-q4.gguf" in left(tmp_path)) == (answer == "y")


def test_without_huggingface_hub_the_package_is_named(monkeypatch):
    monkeypatch.setattr(hub_client.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'redraft\[hub\]'"):
        hub_client.offer(parse("hf:acme/tiny-GGUF/tiny-q4.gguf"))


def test_a_model_that_was_not_pulled_says_how(there):
    with pytest.raises(UnknownNameError, match=r"redraft models pull hf:acme/tiny-GGUF/tiny-q4\.gguf"):
        resolve_lm("local/acme/tiny-GGUF/tiny-q4.gguf")


async def test_a_pulled_model_really_runs(there, tmp_path, monkeypatch):
    """The embedded model's file, served by the hub."""
    from redraft import Run
    from redraft.types import Request

    pytest.importorskip("xllamacpp")
    with monkeypatch.context() as usual:
        usual.delenv("REDRAFT_CACHE")
        model = catalogue.MODELS[catalogue.DEFAULT]
        if not model.pulled:
            pytest.skip("the embedded model is not on this machine")
        content = model.path.read_bytes()
    there.repos["acme/real-GGUF"] = Repo({"SmolLM2-135M-Instruct.Q4_1.gguf": content}, {"license": "apache-2.0"})
    offer = hub_client.offer(parse("hf:acme/real-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf"))
    assert (offer.context, offer.per_token) == (8192, 30 * 2 * 3 * 64 * 2)
    hub_client.fetch(offer)
    lm = resolve_lm("local/acme/real-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf")
    async with Run() as run:
        ask = Request(messages=({"role": "user", "content": "Say hello."},), max_tokens=8)
        reply = await run.complete(ask, lm=lm)
    assert reply.text
    assert reply.model == "local/acme/real-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf"
