"""One Ray for all tests of this tier."""

import os
import time

import pytest

CPUS = 4


@pytest.fixture(scope="session")
def ray_itself():
    """A real local Ray, started once; this process is connected to it."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init("local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


@pytest.fixture
def cluster(ray_itself):
    """The Ray's address. A batch that has ended leaves no worker on it."""
    yield ray_itself.get_runtime_context().gcs_address
    until = time.monotonic() + 30
    while (free := ray_itself.available_resources().get("CPU", 0.0)) < CPUS:
        assert time.monotonic() < until, f"{free} CPUs are free: a worker that nobody has any more holds the rest"
        time.sleep(0.05)
