"""The search for an order of effects: it explains every allowed history, and agrees with an exhaustive search."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from tests.support.check.effects import Effect, Reading, Seals
from tests.support.check.history import ABSENT, GONE, NEVER, Op, OpKind, Outcome
from tests.support.check.witness import _Search, explain


class Model:
    """A model of one key under the protocol, with writers and readers that are interleaved at random.

    Each attempt of an operation acts at one moment between the beginning and the end of the operation.
    """

    values_max = 4
    weights: ClassVar[dict[OpKind, int]] = {
        OpKind.PUT: 4,
        OpKind.DELETE: 2,
        OpKind.GET: 6,
        OpKind.COMMIT: 1,
    }

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0
        self.ops: list[Op] = []
        self.stack: list[tuple[int, Op | None]] = [(GONE, None)]
        self.under_way: list[tuple[Op, list[str]]] = []
        creation = self.begin(OpKind.CREATE, ABSENT)
        self.stack = [(ABSENT, creation)]
        self.answer(creation)

    def begin(self, kind: OpKind, value: int | None, expected: int | None = None) -> Op:
        self.now += 1
        op = Op(len(self.ops), "p", kind, "b", "k", value, self.now, expected=expected)
        self.ops.append(op)
        return op

    def answer(self, op: Op) -> None:
        self.now += 1
        op.end = op.ret = self.now
        op.outcome = Outcome.OK

    def act(self) -> None:
        """Begins a new operation, or performs the next step of a running one."""
        if len(self.under_way) < 4 and self.random.random() < 0.4:
            kind = self.random.choices([*self.weights], [*self.weights.values()])[0]
            value = None
            expected = None
            if kind is OpKind.PUT:
                value = self.random.randint(1, self.values_max)
                if self.random.random() < 0.3:
                    expected = self.random.choice([ABSENT, self.stack[-1][0]])
            elif kind is OpKind.DELETE:
                value = ABSENT
            op = self.begin(kind, value, expected)
            self.under_way.append((op, ["effect", "answer"]))
        elif self.under_way:
            place = self.random.randrange(len(self.under_way))
            op, steps = self.under_way[place]
            if not self.step(op, steps.pop(0)) or not steps:
                del self.under_way[place]

    def step(self, op: Op, step: str) -> bool:
        """Performs a step; returns whether the operation continues. One that does not is never answered."""
        if self.random.random() < 0.08:
            return False
        if step == "answer":
            self.answer(op)
        elif op.kind is OpKind.GET:
            op.value = self.stack[-1][0]
        elif op.kind is OpKind.COMMIT:
            self.seal()
        elif op.expected not in (None, self.stack[-1][0]):
            return False
        else:
            self.stack.append((op.value if op.value is not None else ABSENT, op))
        return True

    def seal(self) -> None:
        """Seals: the newest effects of running writes came too late, and these writes are written again."""
        while self.random.random() < 0.7:
            _, op = self.stack[-1]
            steps = next((steps for other, steps in self.under_way if other is op), None)
            if op is None or op.expected is not None or steps is None:
                return
            if op.kind not in {OpKind.PUT, OpKind.DELETE}:
                return
            self.stack.pop()
            steps.insert(0, "effect")

    def reset(self, op: Op) -> None:
        """Discards everything. Running writes may be acknowledged although they are gone, or are written again."""
        for other, steps in self.under_way:
            if other.kind in {OpKind.PUT, OpKind.DELETE} and other.expected is None:
                is_there = any(each is other for _, each in self.stack)
                if is_there and steps == ["answer"] and self.random.random() < 0.5:
                    steps.insert(0, "effect")
        self.stack = [(op.value or ABSENT, op)]

    def told(self) -> tuple[list[Effect], list[Reading]]:
        effects = [Effect(op.value, op) for op in self.ops if op.value is not None and _writes(op)]
        reads = [
            Reading(op.value, op.inv, op.end, op)
            for op in self.ops
            if op.kind is OpKind.GET and op.is_ok and op.value is not None
        ]
        return effects, reads


class MovingModel(Model):
    """A model with merges, resets, and conditional writes whose rows land later than their conditions are checked."""

    values_max = 12
    weights: ClassVar[dict[OpKind, int]] = {
        OpKind.PUT: 6,
        OpKind.DELETE: 2,
        OpKind.GET: 8,
        OpKind.COMMIT: 1,
        OpKind.MERGE: 3,
        OpKind.RESET: 1,
    }

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seen: dict[int, tuple[int, Op | None]] = {}
        self.merged_over: list[tuple[list[tuple[int, Op | None]], Op]] = []
        self.counts: Counter[str] = Counter()

    def act(self) -> None:
        before = len(self.ops)
        super().act()
        if len(self.ops) > before:
            op, steps = self.under_way[-1]
            if op.kind is OpKind.MERGE or op.expected is not None:
                steps.insert(0, "look")
            if op.kind is OpKind.RESET and self.random.random() < 0.6:
                op.part = "k"  # it finds nothing to discard, or gives up
            elif op.kind in {OpKind.MERGE, OpKind.RESET}:
                op.value = self.random.randint(0, self.values_max)

    def step(self, op: Op, step: str) -> bool:
        if step == "answer" or not (
            op.kind in {OpKind.MERGE, OpKind.RESET} or op.expected is not None
        ):
            return super().step(op, step)
        if self.random.random() < 0.05:
            return False
        if op.part:
            return self.reset_nothing(op)
        if op.kind is OpKind.RESET:
            self.reset(op)
        elif step == "look":
            if op.kind is OpKind.MERGE:
                self.seal()
                op.expected = self.stack[-1][0]
            self.seen[op.number] = self.stack[-1]
            return op.expected == self.stack[-1][0] and op.expected != op.value
        elif op.kind is OpKind.MERGE:
            return self.merge(op)
        else:
            return self.write_late(op)
        return True

    def reset_nothing(self, op: Op) -> bool:
        """Leaves the content beneath all rows as it is."""
        op.value, turn = self.stack[-1]
        return turn is not None and turn.kind in {OpKind.CREATE, OpKind.MERGE, OpKind.RESET}

    def merge(self, op: Op) -> bool:
        """Puts the effect beneath everything that came since the merge looked, and on the merges that came since."""
        seen = self.seen[op.number]
        if all(each is not seen for each in self.stack):
            return False
        place = next(at for at, each in enumerate(self.stack) if each is seen)
        below = [seen]
        for each in self.stack[place + 1 :]:
            if each[1] is None or each[1].kind is not OpKind.MERGE:
                break
            below.append(each)
        place += len(below)
        if any(each is not None and each.kind is OpKind.MERGE for _, each in self.stack[place:]):
            return False
        op.expected = below[-1][0]
        if op.value == op.expected:
            return False
        self.stack.insert(place, (op.value or ABSENT, op))
        self.merged_over.append((below, op))
        self.counts["merges on a merge that ended since they began"] += len(below) > 1
        is_hidden = place < len(self.stack) - 1
        self.counts["of these, hidden beneath a row"] += len(below) > 1 and is_hidden
        return True

    def write_late(self, op: Op) -> bool:
        """Writes the row of a conditional write; one that comes after a merge that it has not seen gets no answer."""
        assert op.value is not None
        seen, top = self.seen[op.number], self.stack[-1]
        is_blind = any(
            merge is top[1] and any(each is seen for each in below)
            for below, merge in self.merged_over
        )
        if top is seen or is_blind:
            self.stack.append((op.value, op))
        return top is seen


def _writes(op: Op) -> bool:
    if op.kind is OpKind.MERGE:
        return op.expected is not None and op.value != op.expected
    return op.kind in {OpKind.PUT, OpKind.DELETE, OpKind.CREATE, OpKind.RESET}


@pytest.mark.parametrize("kind", [Model, MovingModel])
@pytest.mark.parametrize("first", range(0, 400, 100))
def test_every_history_of_the_model_is_explained(kind: type[Model], first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + 100):
        model = kind(seed)
        for _ in range(150):
            model.act()
        effects, reads = model.told()
        verdict = explain(effects, reads, Seals(model.ops))
        story = "\n".join(op.line() for op in model.ops)
        assert verdict.failed is None, f"seed {seed}: {verdict}\n{story}"
        assert not verdict.is_cut
        if isinstance(model, MovingModel):
            counts += model.counts
    assert kind is Model or len(counts) == 2, f"some case does not occur: {counts}"


def _is_linearizable(ops: Sequence[Op]) -> bool:
    """Tries every order of operations on a register; operations without an answer may be left out."""
    seen: set[tuple[frozenset[int], int]] = set()

    def go(done: frozenset[int], value: int) -> bool:
        if (done, value) in seen:
            return False
        seen.add((done, value))
        left = [op for op in ops if op.number not in done]
        first_end = min((op.ret for op in left), default=NEVER)
        if first_end == NEVER:
            return True
        for op in left:
            if op.inv > first_end:
                continue
            if op.kind is OpKind.GET:
                if op.value == value and go(done | {op.number}, value):
                    return True
            elif op.expected in (None, value):
                assert op.value is not None
                if go(done | {op.number}, op.value):
                    return True
        return False

    return go(frozenset(), ABSENT)


@pytest.mark.parametrize("share", [0.0, 0.25])
@pytest.mark.parametrize("first", range(0, 4000, 1000))
def test_without_seals_it_agrees_with_an_exhaustive_search(first: int, share: float) -> None:
    """`share` of the deletes are conditional."""
    explained = 0
    for seed in range(first, first + 1000):
        rng, conditional = random.Random(seed), random.Random(f"conditional {seed}")
        times = rng.sample(range(2, 80, 2), 20)
        ops = [Op(0, "p", OpKind.DELETE, "b", "k", ABSENT, -2, -1, -1, Outcome.OK)]
        for number, (one, other) in enumerate(zip(times[::2], times[1::2], strict=True), 1):
            kind = rng.choice([OpKind.PUT, OpKind.DELETE, OpKind.GET, OpKind.GET])
            value = ABSENT if kind is OpKind.DELETE else rng.choice([ABSENT, 1, 1, 2])
            value = value or (1 if kind is OpKind.PUT else ABSENT)
            begin, end = min(one, other), max(one, other)
            end = min(end, begin + rng.choice([7, 21, 81]))  # most times differ
            op = Op(number, "p", kind, "b", "k", value, begin, end, end, Outcome.OK)
            if kind is OpKind.PUT and rng.random() < 0.3:
                op.expected = rng.choice([ABSENT, 1, 2])
            if kind is OpKind.DELETE and conditional.random() < share:
                op.expected = conditional.choice([1, 1, 2])
            if kind is not OpKind.GET and rng.random() < 0.25:
                op.ret, op.outcome = NEVER, Outcome.INFO
            ops.append(op)
        if share and len({op.end for op in ops}) < len(ops):
            continue
        effects = [Effect(op.value, op) for op in ops if op.value is not None and _writes(op)]
        reads = [
            Reading(op.value, op.inv, op.end, op)
            for op in ops
            if op.kind is OpKind.GET and op.value is not None
        ]
        verdict = explain(effects, reads, Seals([]))
        is_explained = verdict.failed is None
        explained += is_explained
        story = "\n".join(op.line() for op in ops)
        assert is_explained == _is_linearizable(ops), f"seed {seed}\n{story}"
    assert 100 < explained < 900, "the histories must include explained and unexplained ones"


def test_the_order_of_deletes_beside_a_slow_read_is_no_state() -> None:
    """Deletes and creations that overlap, while one read goes on."""
    ops = [Op(0, "p", OpKind.CREATE, "b", "k", ABSENT, 0, 1, 1, Outcome.OK)]
    read = Op(1, "p", OpKind.GET, "b", "k", ABSENT, 2, 999, 999, Outcome.OK)
    for number in range(2, 26, 2):
        now = 10 * number
        put = Op(number, "p", OpKind.PUT, "b", "k", number, now, now + 21, now + 21, Outcome.OK)
        put.expected = ABSENT
        end = now + 29
        ops += [
            put,
            Op(number + 1, "p", OpKind.DELETE, "b", "k", ABSENT, now + 1, end, end, Outcome.OK),
        ]
    effects = [Effect(op.value, op) for op in ops if op.value is not None]
    verdict = explain(effects, [Reading(ABSENT, read.inv, read.end, read)], Seals([]))
    assert verdict.failed is None
    assert verdict.states_max < 100, "there are as many states as orders"


def test_unanswered_conditional_writes_of_few_values_are_not_tried_in_every_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As equal objects make them: each write waits for a value that many others write."""
    values = 5
    ops = [Op(0, "p", OpKind.CREATE, "b", "k", ABSENT, 0, 1, 1, Outcome.OK)]
    ops.append(Op(1, "p", OpKind.PUT, "b", "k", 0, 2, 3, 3, Outcome.OK))
    for number in range(2, 42):
        of_value, before = number % values, (number // values + number) % values
        put = Op(number, "p", OpKind.PUT, "b", "k", of_value, number + 2, NEVER, NEVER)
        put.expected = before
        ops.append(put)
    read = Op(90, "p", OpKind.GET, "b", "k", values - 1, 99, 100, 100, Outcome.OK)
    effects = [Effect(op.value, op) for op in ops if op.value is not None]
    original, count = _Search._put, 0

    def counted(self: _Search, *where: Any) -> Any:
        nonlocal count
        count += 1
        assert count < 100_000, "it tries every order"
        return original(self, *where)

    monkeypatch.setattr(_Search, "_put", counted)
    verdict = explain(effects, [Reading(values - 1, read.inv, read.end, read)], Seals([]))
    assert verdict.failed is None
    assert count > 0
