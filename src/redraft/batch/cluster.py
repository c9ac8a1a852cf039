"""A batch on a Ray cluster: the driver reads, orders, keeps the log and writes; rows are done by actors (ADR 11)."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import re
import socket
import sys
from dataclasses import dataclass
from typing import Any

from redraft import __version__
from redraft.batch.item import Row
from redraft.batch.one import Doing, Outcome
from redraft.batch.portable import packed
from redraft.batch.remote import Common, Job, Remote, WorkerDied, standing
from redraft.config import project_file, settings
from redraft.errors import ClusterError, ConfigError, InputError, RunFailed, UsageError
from redraft.journal import Claim
from redraft.sync import leave_behind
from redraft.turns import Waiters
from redraft.types import Event

_DEATHS = 3
"""After so many deaths of workers that had it, the last one alone, a row is taken to be the reason."""
_START_SECONDS = 120.0
_CONNECT_SECONDS = 5.0
_GOODBYE = 1.0
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>[^:/\s]+|\[[^\]]+\]):(?P<port>\d+)")
_TRAVEL = ("OPENAI_BASE_URL", "REDRAFT_MODEL", "REDRAFT_LOCAL_MODEL", "REDRAFT_DISCOVER")
"""Variables that a worker takes over where it has none: no key is among them."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a batch's rows are done: "local" (Ray on this machine, started for the batch), "auto" (the cluster that this
    machine is part of), "HOST:PORT" or "ray://HOST:PORT". `workers`: how many processes; None: one a CPU.

    A Ray that this process has started already is used as it is. Keys are read from the workers' environment.
    """

    address: str = "local"
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.address not in ("local", "auto") and not _ADDRESS.fullmatch(self.address):
            raise InputError(f"cluster={self.address!r}: give local, auto, HOST:PORT or ray://HOST:PORT")
        if self.workers is not None and not (isinstance(self.workers, int) and self.workers >= 1):
            raise InputError(f"workers={self.workers!r}: give how many processes work on rows, 1 or more")

    def check(self, module: Any) -> None:
        """Raises `UsageError` for what cannot be done on any cluster, before anything is spent."""
        if importlib.util.find_spec("ray") is None:
            raise ConfigError("batches on a cluster need the package ray: pip install 'redraft[ray]'")
        if settings().cache is not None:
            raise UsageError("a cache of replies is one machine's: leave it out, or the cluster")
        packed(module, "the module")

    def connect(self) -> bool:
        """Have Ray in this process; False if it was there already. Raises `ConfigError` if there is none at the address."""
        import ray

        if ray.is_initialized():
            return False
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.address == "local":
            ray.init("local", num_cpus=self.workers, include_dashboard=False, **quiet)
            return True
        if (place := _ADDRESS.fullmatch(_found() if self.address == "auto" else self.address)) is not None:
            _reach(place["host"].strip("[]"), int(place["port"]))
        try:
            ray.init(self.address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"no Ray cluster at {self.address!r} can be used: {error}; start one (ray start --head), or use local; one "
                "with token authentication wants RAY_AUTH_MODE=token and its token in this environment"
            ) from error
        return True


def _found() -> str:
    """Where Ray would look for the cluster of this machine: what is written down stays there when a cluster is killed."""
    try:
        from ray._private.utils import read_ray_address
    except ImportError:  # no public name of Ray's says it
        return os.environ.get("RAY_ADDRESS", "")
    return os.environ.get("RAY_ADDRESS") or read_ray_address() or ""


def _reach(host: str, port: int) -> None:
    """Ray itself tries for minutes."""
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise ConfigError(
            f"nothing answers at {host}:{port} within {_CONNECT_SECONDS:g} s ({error}); is the cluster up, and the port that "
            "of `ray start --head` (6379), or with ray:// that of its clients (10001)?"
        ) from error


class Pool:
    """The workers of one batch. Lives on the batch's loop."""

    def __init__(self, cluster: Cluster, common: Common) -> None:
        self._cluster = cluster
        self._common = common
        self._remotes: list[Remote] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._changed = Waiters()
        self._failure: ClusterError | UsageError | None = None
        self._ray: Any = None
        self._own = self._closing = False
        self._apart = asyncio.Lock()
        """For rows that may be the reason why workers die: they are done one by one, in a worker of their own."""

    @property
    def pids(self) -> list[int]:
        """Of the workers that are up."""
        return [remote.pid for remote in self._remotes if not remote.dead]

    def connect(self) -> None:
        """See `Cluster.connect`. Not in a thread: what Ray starts ends with the thread that it was started in."""
        if self._ray is None:
            self._own = self._cluster.connect()
            self._ray = importlib.import_module("ray")

    def open(self, doing: Doing) -> None:
        """Have workers started."""
        cpus = self._ray.cluster_resources().get("CPU", 0.0)
        workers = self._cluster.workers or max(1, int(cpus))
        self._share = int(min(1.0, cpus / workers) * 1000) / 1000
        self._told = packed(self._all_told(doing), "the settings")
        self._keepers = [asyncio.ensure_future(self._kept_up()) for _ in range(workers)]

    def _all_told(self, doing: Doing) -> tuple[Any, ...]:
        here = settings()
        file = project_file() if here.model is None else {}
        chosen = {name: getattr(here, name) for name in ("budget", "seed", "tries", "strict", "lint")}
        chosen |= {"model": here.model or os.environ.get("REDRAFT_MODEL") or file.get("model")}
        chosen |= {"base_url": here.base_url or file.get("base_url")}
        environment = {name: os.environ[name] for name in _TRAVEL if name in os.environ}
        told = packed(chosen, "the settings"), packed(doing, "what is done with each row")
        return [path for path in sys.path if path], environment, *told, self._common.whole.budget

    async def do(self, row: Row, events: list[Event]) -> Outcome:
        """What comes of a row, wherever it is done. Raises `StoreError`, or `ClusterError` if no worker is left."""
        try:
            packed(row.inputs, "inputs")
        except UsageError as error:
            return Outcome(error=InputError(str(error)))
        claim = None if self._common.store is None else Claim(self._common.store, row.run_id)
        try:
            return await self._done(Job(row, list(events)))
        finally:
            if claim is not None:
                claim.release()

    async def _done(self, job: Job) -> Outcome:
        while True:
            try:
                if job.deaths < _DEATHS - 1:
                    remote = await self._free()
                    return await remote.do(job, self._sent(job))
                async with self._apart:
                    return await self._alone(job)
            except WorkerDied as died:
                job.deaths += 1
                if job.deaths >= _DEATHS:
                    return Outcome(error=_deadly(job, died), usage=job.spent())

    def _sent(self, job: Job) -> bytes:
        row = job.row
        return packed((row.key, row.inputs, job.events, *standing(self._common.whole)), "the row")

    async def _free(self) -> Remote:
        """The worker with the fewest rows."""
        while True:
            if self._failure is not None:
                raise self._failure.with_traceback(None)  # each row raises it
            up = [remote for remote in self._remotes if not remote.dead]
            if up:
                return min(up, key=lambda remote: len(remote.jobs))
            await self._changed.ticket().wait()

    async def _alone(self, job: Job) -> Outcome:
        remote = await self._started(share=0.0)
        listening = asyncio.ensure_future(remote.listen(self._failures))
        try:
            return await remote.do(job, self._sent(job))
        finally:
            await self._end(remote, listening)

    async def _kept_up(self) -> None:
        """One worker, and another one when it has died, as long as they do something before they die."""
        failed = 0
        while not self._closing:
            try:
                remote = await self._started(self._share)
            except UsageError as error:
                self._fail(error)
                return
            except self._failures as error:
                failed += 1
                if failed >= _DEATHS:
                    self._fail(ClusterError(f"{failed} workers in a row could not start: {_short(error)}"))
                    return
                continue
            except TimeoutError:
                if not self._remotes:
                    self._fail(self._none_started())
                return  # the others do
            failed = 0
            self._remotes.append(remote)
            self._changed.wake(turn=False)
            try:
                await remote.listen(self._failures)
            finally:
                self._remotes.remove(remote)
                if not remote.dead:  # it came up while the batch was closed
                    self._kill(remote)

    @property
    def _failures(self) -> tuple[type[Exception], ...]:
        failures: tuple[type[Exception], ...] = (self._ray.exceptions.RayError, ConnectionError)
        return failures

    async def _started(self, share: float) -> Remote:
        from redraft.batch.worker import Worker

        made = self._ray.remote(Worker).options(num_cpus=share, max_restarts=0, max_concurrency=100_000)
        actor = made.remote()
        try:
            async with asyncio.timeout(_START_SECONDS):
                pid = await self._begun(actor)
        except (TimeoutError, asyncio.CancelledError, ConfigError):
            self._ray.kill(actor)  # it would keep its CPUs for as long as a traceback holds on to it
            raise
        remote = Remote(actor, self._common)
        remote.pid = pid
        return remote

    async def _begun(self, actor: Any) -> int:
        """The process of a worker that has read what is to be done."""
        try:
            version, pid = await actor.begin.remote(self._told)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(getattr(error, "cause", None), Exception) else error
            if isinstance(cause, ConfigError):
                raise cause from error
            raise ConfigError(
                f"a worker cannot read what is done with each row: {_short(cause)}; the workers need the same packages and "
                "modules as the driver"
            ) from error
        if version != __version__:
            raise ConfigError(f"the workers have redraft {version}, the driver has {__version__}: install the same")
        return int(pid)

    def _none_started(self) -> ClusterError:
        free = self._ray.available_resources().get("CPU", 0.0)
        return ClusterError(
            f"no worker started within {_START_SECONDS:g} s: each wants {self._share:g} CPUs, and the cluster has {free:g} free; "
            "wait for others to end, or give fewer workers"
        )

    def _fail(self, failure: ClusterError | UsageError) -> None:
        self._failure = failure
        self._changed.wake(turn=False)

    async def _end(self, remote: Remote, listening: asyncio.Task[Any]) -> None:
        self._kill(remote)
        await asyncio.wait({listening}, timeout=_GOODBYE)
        await leave_behind(listening, _GOODBYE)

    def _kill(self, remote: Remote) -> None:
        remote.dead = True
        self._ray.kill(remote.actor)

    async def close(self) -> None:
        """End the workers, and Ray itself if it was started for this batch."""
        self._closing = True
        for remote in self._remotes:
            self._kill(remote)
        if self._keepers:  # who listens hears of it: a call of Ray's client that is cancelled would complain later
            await asyncio.wait(self._keepers, timeout=_GOODBYE if self._remotes else 0)
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        if self._own:
            self._ray.shutdown()


def _deadly(job: Job, died: WorkerDied) -> RunFailed:
    return RunFailed(
        f"{job.deaths} workers died while they did this row, the last one with nothing else to do: {_short(died)}; look for "
        "what ends a process in it (memory, a crash in native code, an exit)"
    )


def _short(error: BaseException) -> str:
    """Ray's messages are pages."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:300]}..."
