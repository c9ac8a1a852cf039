"""What a hub's models are called, what they need of a machine, and what a machine has. No network, no extra."""

import os
import struct
import sys

import pytest

from redraft.errors import ConfigError, UnknownNameError
from redraft.lm import gguf, hub, machine, suggested
from redraft.lm.local import lm
from redraft.lm.machine import Memory


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def put(spec, *, size=5):
    """A model as a fetch leaves it."""
    name = hub.parse(spec)
    for part in name.parts():
        path = hub.root() / name.folder / part
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF" + bytes(size - 4))
    hub.write_note(name, [size] * len(name.parts()), {"licence": "mit", "context": 8192})
    return name


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("hf:Qwen/Q-GGUF/q4.gguf", "Qwen/Q-GGUF/q4.gguf"),
        ("hf://Qwen/Q-GGUF/sub/q4.gguf", "Qwen/Q-GGUF/sub/q4.gguf"),
        ("local/Qwen/Q-GGUF/q4.gguf", "Qwen/Q-GGUF/q4.gguf"),
        ("local/hf:Qwen/Q-GGUF/q4.gguf", "Qwen/Q-GGUF/q4.gguf"),
        ("hf:Qwen/Q-GGUF@v1.0/q4.gguf", "Qwen/Q-GGUF@v1.0/q4.gguf"),
        ("hf:Qwen/Q-GGUF@refs%2Fpr%2F7", "Qwen/Q-GGUF@refs%2Fpr%2F7"),
        ("hf:a/b/x-00002-of-00003.gguf", "a/b/x-00001-of-00003.gguf"),
        ("hf:a/b/x-00001-of-00000.gguf", "a/b/x-00001-of-00000.gguf"),
    ],
)
def test_a_name_is_one_however_it_is_written(spec, name):
    assert str(hub.parse(spec)) == name
    assert hub.parse(str(hub.parse(spec))) == hub.parse(spec)


@pytest.mark.parametrize(
    "spec",
    [
        "hf:",
        "hf:Qwen",
        "hf:a/b/c.safetensors",
        "hf:a/b/../../x.gguf",
        "hf:../b/x.gguf",
        "hf:a/b//x.gguf",
        "hf:a/b/x\\y.gguf",
        "hf:a/b/\x1b[31mx.gguf",
        "hf:a/b/\ud800.gguf",
        "hf:a/b@\ud800/x.gguf",
    ],
)
def test_what_names_no_model_is_refused(spec):
    with pytest.raises(ConfigError, match="hf:OWNER/REPO"):
        hub.parse(spec)


def test_only_what_is_whole_is_here():
    name = put("hf:a/b/x-00001-of-00002.gguf")
    put("hf:a/b@old/y.gguf")
    assert [(str(m.name), m.size, m.licence) for m in hub.pulled()] == [
        ("a/b/x-00001-of-00002.gguf", 10, "mit"),
        ("a/b@old/y.gguf", 5, "mit"),
    ]
    assert hub.find("a/b/x-00002-of-00002.gguf") == name.path
    name.path.write_bytes(b"GG")
    with pytest.raises(UnknownNameError, match="is not on this machine"):
        hub.find(str(name))
    name.note.write_text("not a note")
    assert [str(m.name) for m in hub.pulled()] == ["a/b@old/y.gguf"]


@pytest.mark.parametrize("stray", [".git/b/x.gguf.json", "a/b/-/x y\x1b.gguf.json", "a/b c/x.gguf.json"])
def test_what_else_lies_among_the_models_hides_none(stray):
    put("hf:a/b/y.gguf")
    (hub.root() / stray).parent.mkdir(parents=True, exist_ok=True)
    (hub.root() / stray).write_text("{}")
    assert [str(m.name) for m in hub.pulled()] == ["a/b/y.gguf"]


def test_a_pulled_model_is_used_by_its_name_and_a_file_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRAFT_LOCAL_MODEL", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)  # no engine is started here
    name = put("hf:acme/tiny/sub/q4.gguf")
    assert (lm("acme/tiny/sub/q4.gguf").name, lm("hf:acme/tiny/sub/q4.gguf")._spec.path) == (name.model, name.path)
    with pytest.raises(UnknownNameError, match="redraft models pull hf:acme/tiny/other"):
        lm("acme/tiny/other.gguf")
    own = tmp_path / "acme/tiny/sub/q4.gguf"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"GGUF")
    assert lm("acme/tiny/sub/q4.gguf")._spec.path == own


def head(*pairs, count=None):
    """The first bytes of a GGUF file with these values."""
    body = b""
    for name, kind, raw in pairs:
        body += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + raw
    return b"GGUF" + struct.pack("<IQQ", 3, 0, count or len(pairs)) + body


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


SHAPE = (
    ("general.architecture", 8, text("qwen2")),
    ("qwen2.block_count", 4, struct.pack("<I", 28)),
    ("qwen2.context_length", 10, struct.pack("<Q", 32768)),
    ("qwen2.embedding_length", 4, struct.pack("<I", 1536)),
    ("qwen2.attention.head_count", 4, struct.pack("<I", 12)),
    ("qwen2.attention.head_count_kv", 4, struct.pack("<I", 2)),
)


def test_the_head_of_a_file_says_what_its_context_takes():
    said = gguf.read_head(head(*SHAPE, ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 150_000)), count=40))
    assert gguf.context_bytes(said) == 28_672  # 28 layers, 2 heads of 128, keys and values of 2 bytes
    assert gguf.longest_context(said) == 32_768
    layers = (*SHAPE[:1], ("qwen2.block_count", 4, struct.pack("<I", 3)), *SHAPE[3:5])
    mixed = ("qwen2.attention.head_count_kv", 9, struct.pack("<IQIII", 4, 3, 2, 0, 4))
    wide = [(f"qwen2.attention.{part}_length", 4, struct.pack("<I", 64)) for part in ("key", "value")]
    assert gguf.context_bytes(gguf.read_head(head(*layers, mixed, *wide))) == 6 * 128 * 2


def test_a_head_that_boasts_takes_no_memory_to_read():
    boast = (*SHAPE[:1], ("qwen2.block_count", 10, struct.pack("<Q", 2**62)), *SHAPE[3:])
    assert gguf.context_bytes(gguf.read_head(head(*boast))) == 2**62 * 2 * 256 * 2


def test_a_head_that_is_cut_anywhere_is_read_as_far_as_it_goes():
    whole = head(*SHAPE)
    for end in range(len(whole)):
        gguf.context_bytes(gguf.read_head(whole[:end]))
    assert gguf.read_head(whole) == gguf.read_head(whole + b"\0" * 9)
    assert gguf.read_head(b"version https://git-lfs") == {}
    nested = head(("x", 9, struct.pack("<IQ", 9, 1) * 5000))
    assert gguf.read_head(nested) == {}


@pytest.fixture
def computer(tmp_path):
    """Writes files as Linux shows them: `computer({"proc/meminfo": ...})`."""

    def write(files):
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
        return tmp_path

    return write


MEMINFO = "MemTotal:       8000 kB\nMemFree:        1000 kB\nMemAvailable:   6000 kB\n"
KB = 1024


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="Linux tells its memory in files")
@pytest.mark.parametrize(
    ("files", "memory"),
    [
        ({}, Memory(8000 * KB, 6000 * KB)),
        (
            {
                "proc/self/cgroup": "0::/app/worker\n",
                "sys/fs/cgroup/app/memory.max": str(4000 * KB),
                "sys/fs/cgroup/app/memory.current": str(3000 * KB),
                "sys/fs/cgroup/app/memory.stat": f"anon 5\ninactive_file {500 * KB}\n",
                "sys/fs/cgroup/app/worker/memory.max": "max\n",
                "sys/fs/cgroup/app/worker/memory.current": "0",
            },
            Memory(4000 * KB, 1500 * KB),
        ),
        (
            {  # a container that sees its own group as the top, under the host's name
                "proc/self/cgroup": "0::/docker/abc\n",
                "sys/fs/cgroup/memory.max": str(2000 * KB),
                "sys/fs/cgroup/memory.current": "0",
            },
            Memory(2000 * KB, 2000 * KB),
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,memory:/\n1:name=systemd:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": str(3000 * KB),
                "sys/fs/cgroup/memory/memory.usage_in_bytes": str(1000 * KB),
            },
            Memory(3000 * KB, 2000 * KB),
        ),
    ],
    ids=["bare", "cgroup-2", "container", "cgroup-1"],
)
def test_memory_is_what_this_process_may_use(computer, files, memory):
    assert machine.memory(computer({"proc/meminfo": MEMINFO, **files})) == memory


def test_memory_that_cannot_be_known_is_not_guessed(computer, tmp_path):
    if sys.platform.startswith("linux"):
        assert machine.memory(tmp_path) is None
        assert machine.memory(computer({"proc/meminfo": "nothing\n"})) is None
    assert machine.memory() is None or machine.memory().total > 0
    assert 1 <= machine.cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(("free", "cores"), [(10**8, 1), (10**9, 2), (4 * 10**9, 4), (32 * 10**9, 16), (10**12, 256)])
def test_one_model_at_most_is_recommended_and_it_fits_with_room_to_spare(free, cores):
    judged = suggested.verdicts(Memory(free, free), cores)
    best = [model for model, verdict in judged if verdict == "recommended"]
    assert len(best) <= 1
    assert all(model.memory <= free / 2 for model in best)
    assert all((verdict == "too big") == (model.memory > free) for model, verdict in judged)
    assert {verdict for _, verdict in suggested.verdicts(None, cores)} == {"?"}


def test_every_suggestion_is_a_name_that_pull_takes():
    for model in suggested.MODELS:
        assert str(hub.parse(f"hf:{model.name}")) == model.name


@pytest.mark.parametrize(
    "page",
    [
        "acme/tiny-GGUF/blob/main/tiny.gguf",
        "acme/tiny-GGUF/resolve/main/tiny.gguf?download=true",
        "acme/tiny-GGUF/tiny.gguf",
    ],
)
def test_what_a_browser_shows_is_a_name_too(page):
    assert hub.looks_like_one(f"https://huggingface.co/{page}")
    assert hub.parse(f"https://huggingface.co/{page}") == hub.parse("hf:acme/tiny-GGUF/tiny.gguf")
