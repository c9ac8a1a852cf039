"""Variables on their way in: once, by descriptor, whole."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.errors import InputError
from redraft.sandbox import handover

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=30,
)


@given(JSON)
def test_the_pieces_are_the_json(value):
    assert json.loads("".join(handover.pieces(value))) == value


@pytest.mark.parametrize(
    "value",
    [
        '\u00e9\ud83d"\n' * 3_000_000,
        list(range(100_000)),
        [{"id": n, "text": "x" * (n % 9)} for n in range(20_000)],
        {"a": {"b": ["x" * 10_000, {"c": ["y"] * 5_000}]}, "d": [[[n] for n in range(1000)]]},
        {str(n): n for n in range(5_000)},
        [None, True, (1, 2), [], {}, "x" * 10_000],
        {1: "a", None: "b", 2.5: "c", False: "d"},
    ],
)
def test_big_values_come_in_small_pieces(value):
    pieces = list(handover.pieces(value))
    assert json.loads("".join(pieces)) == json.loads(json.dumps(value))
    assert max(map(len, pieces)) < 1 << 22


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"x": object()}, "'x' cannot be handed to the sandbox"),
        ({"x": {"a": [1, {2}]}}, "'x' cannot be handed"),
        ({"x": {(1, 2): 3}}, "'x' cannot be handed"),
        ({"a b": 1}, "'a b' cannot be the name"),
        ({"": 1}, "'' cannot be the name"),
    ],
)
async def test_what_cannot_be_handed_over_is_said(jail, open_descriptors, values, says):
    before = open_descriptors()
    with pytest.raises(InputError, match=says):
        await jail.start({"fine": "x" * 100, **values}, {})
    assert open_descriptors() <= before


async def test_a_ring_is_an_error(jail):
    ring = []
    ring.append(ring)
    with pytest.raises(InputError, match="cannot be handed"):
        await jail.start({"ring": ring}, {})


async def test_files_that_are_none_are_said(jail, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, says in (("nowhere", "cannot be read"), (".", "is no file"), ("pipe", "is no file")):
        with pytest.raises(InputError, match=says):
            await jail.start({"x": tmp_path / name}, {})


async def test_texts_of_every_kind_arrive(jail, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "latin").write_bytes("caf\u00e9".encode("latin-1"))
    (tmp_path / "utf8").write_bytes("\ufeffa\r\nb \u20ac".encode())
    values = {
        "empty": tmp_path / "empty",
        "latin": tmp_path / "latin",
        "utf8": tmp_path / "utf8",
        "half": "half \ud83d",
        "zero": "\0" * 5,
        "none": b"",
        "array": bytearray(b"ab"),
        "view": memoryview(b"cd"),
        "wide": "\U0001f600" * 100_000,
        "nan": [float("inf")],
    }
    await jail.start(values, {})
    code = (
        "assert empty == '' and none == b'' and array == b'ab' and view == b'cd' and zero == '\\0' * 5\n"
        "assert latin == b'caf\\xe9' and utf8 == '\\ufeffa\\r\\nb \\u20ac' and half == 'half \\ud83d'\n"
        "assert wide == '\\U0001f600' * 100_000 and nan == [float('inf')]"
    )
    assert (await jail.execute(code)).error == ""


async def test_a_file_is_read_and_cannot_be_written(jail, tmp_path):
    file = tmp_path / "data"
    file.write_text("one")
    await jail.start({"data": file}, {})
    code = "import os\nfor fd in range(3, 100):\n    try: os.pwrite(fd, b'X', 0)\n    except OSError: pass\nprint(data)"
    result = await jail.execute(code)
    assert result.lost or result.output == "one\n"  # it may have spoken nonsense on the wire
    assert file.read_text() == "one"


async def test_a_big_file_is_in_memory_once(jail, tmp_path):
    """Resident after the hand-over: the text and little more. A map of the file, and its bytes, are gone."""
    size = 64 << 20
    file = tmp_path / "big"
    file.write_bytes(b"0123456789abcde\n" * (size // 16))

    def resident():
        status = Path(f"/proc/{jail._process.popen.pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    await jail.start({}, {})
    await jail.execute("import asyncio, statistics, csv")
    empty = resident()
    await jail.start({"text": file}, {})
    assert (await jail.execute(f"print(len(text) == {size}, text[-16:-1])")).output == "True 0123456789abcde\n"
    assert resident() - empty < 1.1 * size


async def test_big_texts_do_not_block_the_loop(jail):
    """While one is encoded and handed over, the loop goes on turning."""
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await jail.start({"text": "x" * (40 << 20)}, {})
    counting.cancel()
    assert turns > 20
    assert (await jail.execute("len(text)")).output == f"{40 << 20}\n"


async def test_more_than_the_memory_is_an_error_in_the_code(tmp_path):
    from redraft.sandbox import Jail

    jail = Jail(memory=64 << 20)
    await jail.start({"text": "x" * (30 << 20)}, {})
    assert (await jail.execute("text * 2")).error == "MemoryError"
    assert (await jail.execute("len(text)")).output == f"{30 << 20}\n"
    await jail.close()
