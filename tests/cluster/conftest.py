"""One Ray for all tests of this tier."""

import os

import pytest


@pytest.fixture(scope="session")
def cluster():
    """The address of a real local Ray with four CPUs, started once; this process is connected to it."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()
