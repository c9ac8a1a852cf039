"""Programs as models write them do in the jail what they do in CPython: the same output, the same type of error."""

import contextlib
import copy
import io
import logging
import sys
import types

import pytest
from realistic_cells import CELLS, VARIABLES

from redraft.sandbox import Jail


@pytest.fixture(scope="module")
def texts(share):
    shared = share(Jail(seconds=30))

    async def start():
        await shared.jail.start(VARIABLES, {})

    shared.start = start
    return shared


@pytest.fixture(scope="module")
def plainly():
    """What each program does in this process, where no loop runs yet: its output and the type of its error."""
    ours, handlers = sys.modules["__main__"], logging.root.handlers[:]
    done = {}
    for name, code in CELLS.items():
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        vars(main).update(copy.deepcopy(VARIABLES))
        done[name] = _done(code, vars(main))
        logging.root.handlers[:] = handlers
    sys.modules["__main__"] = ours
    return done


def _done(code, names):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(code, "<cell>", "exec", dont_inherit=True), names)
        except Exception as raised:  # noqa: BLE001 - whatever the program raises
            return out.getvalue(), type(raised).__name__
    return out.getvalue(), ""


@pytest.mark.parametrize("name", CELLS)
async def test_it_runs_as_in_cpython(texts, plainly, name):
    output, error = plainly[name]
    result = await texts.run(CELLS[name])
    assert result.error.partition(":")[0] == error, result.output
    if error:
        assert result.output.startswith(output)
        assert error in result.output[len(output) :]
    else:
        assert result.output == output
