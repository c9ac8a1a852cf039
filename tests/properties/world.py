"""Random programs on a model that keeps its own books.

A program is a tree of modules, user code (async and in threads), strategies with budgets, races and steps. The model
honours its cap, replies by what it is asked and by its seed alone, and counts what each call truly used, also when it
fails or is cancelled half way.
"""

import asyncio
import json
import random
import re
from collections import defaultdict
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from hypothesis import strategies as st

from redraft import BestOfN, Budget, Module, Predict, Refine, Reflect, Run, SelfRefine, context
from redraft.errors import BadRequestError, BudgetExceeded, LMError, RedraftError, RunClosed, TransientLMError
from redraft.frame import current_frame
from redraft.testing import FunctionLM
from redraft.testing.words import prompt_words
from redraft.types import Choice, Completion, Prediction, Usage

levels = ContextVar("levels", default=())
"""The budgeted strategies around the running code, outermost first, as (scope, budget)."""


def fraction(*parts):
    """A number in 0..1 that depends on the parts alone."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=4).digest(), "big") / 2**32


@dataclass
class Call:
    """One call as the upstream sees it."""

    seed: int
    cap: int | None
    levels: tuple
    tokens: int = 0
    over: bool = False

    @property
    def cost(self):
        return self.tokens * PRICE


PRICE = 0.001


class BookkeepingLM(FunctionLM):
    """Honours its cap unless told otherwise; `calls` are its books. `rng` gives the latencies, and nothing else."""

    def __init__(self, faults=None, rng=None, latency=0.001, greedy=False, price=PRICE):
        super().__init__(lambda request: "", name="books", price=price)
        self.parallel = 3
        self.faults = faults or {}
        self.rng = rng or random.Random(0)
        self.latency = latency
        self.greedy = greedy
        self.calls = []
        self.effects = []
        self._tries = defaultdict(int)

    async def generate(self, request, on_delta=None):
        call = Call(request.seed, request.max_tokens, levels.get())
        self.calls.append(call)
        fault = self._fault(request)
        if fault == "unsent":
            raise TransientLMError("unsent", retry_after=0)
        if fault == "refused":
            raise BadRequestError("refused", status=400)
        text = self._text(request)
        words = text.split()
        cap = None if self.greedy else request.max_tokens
        words = words if cap is None else words[:cap]
        read = prompt_words(request.messages)
        call.tokens = read
        pause = self.rng.random() * self.latency
        for part in (1, 2):
            await asyncio.sleep(pause / 2)
            call.tokens = read + len(words) * part // 2  # what a cancellation in between finds written
        if fault == "cut":
            raise TransientLMError("cut", sent=True, retry_after=0)
        call.over = True
        usage = None if fault == "silent" else Usage(input_tokens=read, output_tokens=len(words))
        return Completion(choices=(Choice(text=" ".join(words), finish_reason="stop"),), usage=usage)

    def _fault(self, request):
        leaf = re.search(r"leaf(\d+)", json.dumps(request.messages))
        planned = self.faults.get(int(leaf[1]) % 4 if leaf else -1, ())
        nth = self._tries[request.seed] = self._tries[request.seed] + 1
        return planned[nth - 1] if nth <= len(planned) else None

    def _text(self, request):
        """Between one and eleven words; a critic's and a judge's replies follow their form."""
        said = json.dumps(request.messages)
        luck = fraction(said, request.seed)
        if request.schema is not None:
            fields = request.schema["properties"]
            if "better" in fields:
                return json.dumps({"better": ["A", "B", "tie"][int(luck * 3)]})
            fine = luck < 0.2
            issue = {"problem": "p", "suggestion": "s", "aspect": "a", "severity": "major", "location": "l"}
            return json.dumps({"verdict": "ok" if fine else "revise", "issues": [] if fine else [issue]})
        return " ".join(f"w{int(luck * 10**6)}" for _ in range(1 + int(luck * 11)))


# Programs


@dataclass(frozen=True)
class Node:
    kind: str
    id: int
    children: tuple = ()
    budget: Budget | None = None
    N: int = 2
    keep: bool = True
    """Sub-modules are attributes of the module; otherwise they live in a closure."""


class Built(Module):
    """User code made of a node."""

    def __init__(self, node, lm, rng):
        self.name = f"{node.kind}{node.id}"
        self._rng = rng
        parts = tuple(build(child, lm, rng) for child in node.children)
        if node.keep:
            self.parts = parts
            self._parts = lambda: self.parts
        else:
            self._parts = lambda: parts

    async def _pause(self):
        if self._rng.random() < 0.5:
            await asyncio.sleep(self._rng.random() * 0.002)


def text_of(said):
    return str(said.to_dict().get("a", said.to_dict().get("answer"))) if isinstance(said, Prediction) else str(said)


class Sequence(Built):
    async def aforward(self, q):
        return " ".join([text_of(await part.acall(q=q)) for part in self._parts()])


class Gather(Built):
    """Everything at once, each after a pause of its own: arrival order is luck."""

    async def aforward(self, q):
        async def one(part):
            await self._pause()
            return text_of(await part.acall(q=q))

        outcomes = await asyncio.gather(*(one(part) for part in self._parts()), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return " ".join(outcomes)


class Race(Built):
    """The first one wins, the others are cancelled."""

    async def aforward(self, q):
        tasks = [asyncio.ensure_future(part.acall(q=q)) for part in self._parts()]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return text_of(next(iter(done)).result())


class Threaded(Built):
    """A user's `def`: runs in a worker thread and calls modules as functions."""

    def forward(self, q):
        return " ".join([text_of(part(q=q)) for part in self._parts()])


class Lenient(Built):
    """User code that takes failures in its stride."""

    async def aforward(self, q):
        said = []
        for part in self._parts():
            try:
                said.append(text_of(await part.acall(q=q)))
            except (LMError, BudgetExceeded) as error:
                said.append(type(error).__name__)
        return " ".join(said)


class Levelled(Module):
    """Notes around a strategy whose budget its calls count on."""

    def __init__(self, node, lm, rng):
        self.name = f"{node.kind}{node.id}"
        self._node = node
        self.strategy = strategy(node, lm, rng)

    async def aforward(self, q):
        frame = current_frame()
        level = (f"{frame.scope}~{self._node.id}", self._node.budget)
        token = levels.set((*levels.get(), level))
        try:
            return text_of((await self.strategy.acall(q=q)).prediction)
        finally:
            levels.reset(token)


class Effect(Module):
    """A user's own effect, journalled as a step."""

    def __init__(self, node, lm):
        self.name = f"effect{node.id}"
        self._lm = lm

    async def aforward(self, q):
        return await current_frame().run.step("effect", self._do, q)

    def _do(self, q):
        self._lm.effects.append(self.name)
        return f"{self.name} of {q}"


def reward(inputs, prediction):
    """Depends on the text alone."""
    return fraction(text_of(prediction))


def strategy(node, lm, rng):
    module = build(node.children[0], lm, rng)
    options = {"reward_fn": reward, "budget": node.budget}
    if node.kind == "refine":
        return Refine(module, N=node.N, **options)
    if node.kind == "best":
        return BestOfN(module, N=node.N, threshold=0.9, **options)
    if node.kind == "reflect":
        return Reflect(module, editor=critic(lm), rounds=1, judge=judge(lm), budget=node.budget)
    return SelfRefine(module, critic=critic(lm), reviser=reviser(lm), rounds=node.N, judge=judge(lm), **options)


def critic(lm):
    from redraft import Critic

    return Critic("critic", lm=lm)


def judge(lm):
    from redraft import Pairwise

    return Pairwise(lm)


def reviser(lm):
    from redraft import Role

    return Role(persona="reviser", lm=lm)


KINDS = {
    "sequence": Sequence,
    "gather": Gather,
    "race": Race,
    "threaded": Threaded,
    "lenient": Lenient,
    "refine": Levelled,
    "best": Levelled,
    "self_refine": Levelled,
    "reflect": Levelled,
}
STRATEGIES = ("refine", "best", "self_refine", "reflect")


def build(node, lm, rng):
    if node.kind == "effect":
        return Effect(node, lm)
    if node.kind == "leaf":
        return Predict("q -> a", lm=lm, system=f"You are leaf{node.id}.", max_tokens=8 if node.N == 2 else None)
    return KINDS[node.kind](node, lm, rng)


# What hypothesis draws

budgets = st.one_of(
    st.none(),
    st.builds(lambda calls: Budget(calls=calls), st.integers(1, 6)),
    st.builds(lambda tokens: Budget(tokens=tokens), st.integers(20, 400)),
    st.builds(lambda tokens: Budget(cost=tokens * PRICE), st.integers(20, 400)),
    st.builds(lambda calls, tokens: Budget(calls=calls, tokens=tokens), st.integers(2, 8), st.integers(50, 400)),
)


leaves = st.builds(Node, kind=st.sampled_from(["leaf", "leaf", "leaf", "effect"]), id=st.just(0), N=st.integers(2, 3))
either = st.booleans()


def nodes(kinds, limits, depth, keep=either):
    """User code around leaves, strategies and more user code; ids are set afterwards."""
    users = st.sampled_from([kind for kind in kinds if kind not in STRATEGIES])
    if depth == 0:
        return leaves
    inner = nodes(kinds, limits, depth - 1, keep)
    refining = st.builds(
        Node,
        kind=st.sampled_from([kind for kind in kinds if kind in STRATEGIES]),
        id=st.just(0),
        children=inner.map(lambda child: (child,)),
        budget=limits,
        N=st.integers(1, 2),
    )
    children = st.lists(st.one_of(leaves, refining, inner), min_size=1, max_size=3).map(tuple)
    return st.builds(Node, kind=users, id=st.just(0), children=children, keep=keep)


def programs(kinds=tuple(KINDS), limits=budgets, depth=2, **options):
    """A strategy at the root, so that there is always a Run to look at."""
    return st.builds(
        lambda child, kind, budget, N: numbered(Node(kind, 0, (child,), budget, N)),
        nodes(kinds, limits, depth, **options),
        st.sampled_from(STRATEGIES),
        limits,
        st.integers(1, 2),
    )


def numbered(node):
    count = iter(range(10**6))

    def number(node):
        me = next(count)
        return replace(node, id=me, children=tuple(number(child) for child in node.children))

    return number(node)


fault = st.sampled_from(["unsent", "cut", "silent", "refused", None])
faults = st.dictionaries(st.integers(0, 3), st.lists(fault, max_size=3).map(tuple), max_size=2)
"""By leaf (its id modulo four): what happens at each try of each of its calls."""
mild = st.dictionaries(
    st.integers(0, 3), st.lists(st.sampled_from(["unsent", "cut", "silent", None]), max_size=3).map(tuple), max_size=2
)
"""Faults that a retry gets over."""


# Running


@dataclass
class Outcome:
    run: Run
    lm: BookkeepingLM
    result: object = None
    error: BaseException | None = None
    events: list = field(default_factory=list)

    @property
    def usage(self):
        return self.run.usage


async def execute(node, lm, rng, *, store=None, run_id=None, cancel_after=None, how="task", budget=None):
    """Run the program at the root strategy; what comes of it, whatever comes."""
    run = Run(store=store, run_id=run_id, seed=7, budget=budget or node.budget)
    root = strategy(replace(node, budget=None), lm, rng)
    token = levels.set((("root", budget or node.budget),))
    with context(model=lm):
        task = asyncio.ensure_future(run.execute(root, root.bind({"q": "x"})))
    levels.reset(token)
    if cancel_after is not None:
        stop = task.cancel if how == "task" else run.cancel
        asyncio.get_running_loop().call_later(cancel_after, stop)
    outcome = Outcome(run, lm)
    try:
        outcome.result = await asyncio.wait_for(asyncio.shield(task), 20)
    except asyncio.CancelledError as error:
        outcome.error = error
    except RedraftError as error:
        outcome.error = error
    outcome.events = list(run.journal.events)
    return outcome


def spent_by_level(calls):
    """(scope, budget) -> calls, tokens."""
    total = defaultdict(lambda: [0, 0])
    for call in calls:
        for level in call.levels:
            total[level][0] += 1
            total[level][1] += call.tokens
    return total


def in_flight(run):
    return run.meter._in_flight, run.meter._reserved_tokens, run.meter._reserved_pico


__all__ = [
    "PRICE",
    "BookkeepingLM",
    "Node",
    "RunClosed",
    "budgets",
    "execute",
    "faults",
    "fraction",
    "in_flight",
    "levels",
    "mild",
    "programs",
    "spent_by_level",
    "strategy",
]
