"""Interpreters by their names."""

import functools
import subprocess
import sys

import pytest

from redraft.errors import SandboxError, UnknownNameError
from redraft.sandbox import Jail, interpreter
from redraft.sandbox.local import UnsafeLocal


def test_auto_is_the_jail_where_it_holds():
    jail = interpreter(seconds=5)
    assert isinstance(jail, Jail)
    assert jail._seconds == 5
    assert isinstance(interpreter("jail"), Jail)


def test_what_is_an_interpreter_passes_through():
    jail = Jail()
    assert interpreter(jail) is jail
    assert isinstance(interpreter(Jail), Jail)
    assert interpreter(functools.partial(Jail, 7))._seconds == 7


def test_an_unknown_name_lists_the_known():
    with pytest.raises(UnknownNameError, match=r"known: auto, jail, .*unsafe_local"):
        interpreter("local")


def test_what_is_none_is_an_error():
    with pytest.raises(SandboxError, match="no interpreter"):
        interpreter(dict)


def test_another_system_says_what_to_do(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxError, match=r"does not run on darwin.*redraft\[monty\]"):
        interpreter()


def test_unsafe_local_warns_once_a_process():
    code = (
        "import asyncio, warnings\nfrom redraft.sandbox import interpreter\n"
        "async def main():\n    for _ in range(2):\n        one = interpreter('unsafe_local')\n        await one.start({}, {})\n"
        "        print((await one.execute('1')).output, end='')\n        await one.close()\n"
        "with warnings.catch_warnings(record=True) as seen:\n    warnings.simplefilter('always')\n    asyncio.run(main())\n"
        "print(len(seen), seen[0].message)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("1\n1\n1 unsafe_local runs a model's code in this very process")


@pytest.mark.filterwarnings("ignore:unsafe_local:RuntimeWarning")
async def test_unsafe_local_leaves_a_stubborn_cell_behind():
    local = UnsafeLocal(seconds=0.3)
    await local.start({}, {})
    code = "import time\nprint('said')\nuntil = time.monotonic() + 3\nwhile time.monotonic() < until:\n    try:\n        time.sleep(0.01)\n    except BaseException:\n        pass"
    result = await local.execute(code)
    assert result.lost
    assert result.output == "said\n"
    with pytest.raises(SandboxError):
        await local.execute("1")
    await local.close()


@pytest.mark.filterwarnings("ignore:unsafe_local:RuntimeWarning")
async def test_unsafe_local_does_not_hand_out_the_hosts_own_objects():
    values = {"items": [{"a": 1}]}
    local = UnsafeLocal()
    await local.start(values, {})
    assert (await local.execute("items[0]['a'] = 2\nprint(items)")).output == "[{'a': 2}]\n"
    assert values == {"items": [{"a": 1}]}
    await local.close()
