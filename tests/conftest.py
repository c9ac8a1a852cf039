"""What holds for every test: it depends neither on what else runs on this machine nor on whose machine it is."""

import gc
import os
import signal
from contextlib import suppress

import pytest

from redraft import turns
from redraft.lm.native.table import DOORS

os.environ["REDRAFT_DISCOVER"] = "0"  # no test meets the developer's own model servers; processes inherit it
for variable in {key for door in DOORS.values() for key in door.keys}:
    os.environ.pop(variable, None)  # nor spends the developer's money
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background
    signal.signal(signal.SIGINT, signal.default_int_handler)
with suppress(ImportError):  # a tier's environment may lack it
    from hypothesis import settings

    settings.register_profile("busy", deadline=None)  # a busy machine is no fault of what is tested
    settings.load_profile("busy")


@pytest.fixture(autouse=True)
def _fresh_gates():
    """No test waits at a gate that another one's "too many requests" has shut."""
    turns._gates.clear()


def pytest_collection_finish():
    """Thousands of collected tests are no garbage: a collection that looks through all of them takes a second."""
    gc.collect()
    gc.freeze()
