"""Writers and readers of the model of the branch protocol (see `branch_model`): rules 1, 2 and 3."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.models.branch_state import Local, Rules, Step, StoreState

__all__ = ["create", "delete", "delete_if", "put", "read"]


def put(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """An unconditional write (rule 1); it may begin with a cached record of any age."""
    if me.pc == "begin":
        yield "caches the record", lake, me._replace(pc="start", record=lake.record), None
    elif me.pc == "start":
        pc = "write" if rules.has("issued after") else "join"
        yield "begins", lake.begins(me.number), me._replace(pc=pc), None
    elif me.pc == "join":
        yield "joins a read of the record", lake, me._replace(pc="write", fresh=lake.record), None
    elif me.pc == "write":
        written = lake.with_row(me.record.staging, me.number)
        yield f"writes to T{me.record.staging}", written, me._replace(pc="check"), None
    else:
        yield _check(lake, me, rules, "write" if rules.has("issued after") else "join")


def _check(lake: StoreState, me: Local, rules: Rules, again: str) -> Step:
    """The second half of rule 1, after the row is durable."""
    seen = me.fresh or lake.record
    if seen.staging == me.record.staging or not rules.has("re-check"):
        return "is acknowledged", lake.acknowledges(me.number), me.ends(), None
    return _again(lake, me, rules, again, "its token was sealed")


def _again(lake: StoreState, me: Local, rules: Rules, pc: str, why: str) -> Step:
    """Begins again with the current record; without a try left, the outcome is unknown."""
    if me.tries == rules.tries:
        return f"{why}: gives up", lake, me.ends(), None
    again = Local(
        me.kind,
        me.number,
        pc,
        record=lake.record,
        wrote=me.wrote,
        judged=me.judged if me.wrote else 0,
        tries=me.tries + 1,
    )
    return f"{why}: again", lake, again, None


def _scan(
    lake: StoreState,
    me: Local,
    rules: Rules,
    then: str,
    *,
    on: bool = False,
) -> Step:
    """Reads one more layer; `then` follows when a row was found or no layer is left.

    A commit never changes, so it is read together with the last token. `on`: a row in the staging token does
    not end the search.
    """
    layers = me.record.tokens
    token = layers[me.at]
    row = lake.tokens[token]
    found = me._replace(row=row if me.at == 0 else me.row)
    if row is not None and not (on and me.at == 0):
        return f"finds {row} in T{token}", lake, found._replace(pc=then, value=row), None
    if me.at + 1 < len(layers):
        return f"passes T{token}", lake, found._replace(at=me.at + 1), None
    value = lake.commits[me.record.commit][0]
    if rules.has("base is read"):
        value = lake.committed(me.record)
    found = found._replace(pc=then, value=value, at=len(layers))
    return f"passes T{token}, finds {value} beneath", lake, found, None


# ---- rule 2


def read(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """Reads with a cached record and concurrently reads the fresh record; reads again if they differ."""
    if me.pc == "begin":
        yield "caches the record", lake, me._replace(pc="start", record=lake.record), None
    elif me.pc == "start":
        seen = (lake.record.tokens, len(lake.tokens))
        yield "begins", lake, me._replace(pc="reads", acked=lake.acked, seen=seen), None
    else:
        yield from _reads(lake, me, rules)


def _reads(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    if me.fresh is None:
        yield "reads the record afresh", lake, me._replace(fresh=lake.record), None
    if me.value is None:
        yield _scan(lake, me, rules, "reads")
    elif me.fresh is not None:
        if rules.has("read compares") and not me.fresh.same_layers(me.record):
            again = me._replace(record=me.fresh, at=0, value=None)
            yield "reads again by the fresh record", lake, again, None
            return
        broken = None
        if not rules.is_legal(lake, me.value, me.acked):
            broken = f"stale: a read returns {me.value}; acknowledged before it: {set(me.acked)}"
        yield f"returns {me.value}", lake, me.ends(), broken


# ---- rule 3


def delete(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """Writes a tombstone if there is an object to hide."""
    if me.pc == "begin":
        yield (
            "begins, reads the record",
            lake.begins(me.number),
            me._replace(pc="scan", record=lake.record),
            None,
        )
    elif me.pc == "scan":
        yield _scan(lake, me, rules, "decide", on=not rules.has("delete marks"))
    elif me.pc == "decide":
        yield _decide_delete(lake, me, rules)
    elif me.pc == "write":
        row = me.value  # the tombstone; None removes the row
        written = lake.with_row(me.record.staging, row)
        label = f"sets {row} in T{me.record.staging}"
        yield label, written, me._replace(pc="check", wrote=True), None
    else:
        yield _check(lake, me, rules, "scan")


def _decide_delete(lake: StoreState, me: Local, rules: Rules) -> Step:
    same = lake.record.same_layers(me.record)
    if not rules.has("delete compares all"):
        same = lake.record.staging == me.record.staging
    if not same and rules.has("delete verifies"):
        return _again(lake, me, rules, "scan", "the record changed")
    assert me.value is not None
    layers = len(me.record.tokens)
    in_sealed = 0 < me.at < layers
    if rules.is_absent(me.value) and not (in_sealed and rules.has("sealed tombstone")):
        if me.row is not None and not rules.has("delete marks"):
            return "will remove the row", lake, me._replace(pc="write", value=None), None
        return "has nothing to delete", lake.acknowledges(me.number), me.ends(), None
    return "will write a tombstone", lake, me._replace(pc="write", value=me.number), None


def create(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """A write with `If-None-Match: *`."""
    yield from _conditionally(lake, me, rules, _decide_create)


def delete_if(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """A delete with `If-Match`, of the value of the last write before it in the scenario. Its tombstone names it."""
    yield from _conditionally(lake, me, rules, _decide_delete_if)


def _conditionally(
    lake: StoreState, me: Local, rules: Rules, decide: Callable[[StoreState, Local, Rules], Step]
) -> Iterator[Step]:
    """Reads the layers, verifies the record, judges, compares and sets, and checks the record again."""
    if me.pc == "begin":
        yield (
            "begins, reads the record",
            lake.begins(me.number),
            me._replace(pc="scan", record=lake.record),
            None,
        )
    elif me.pc == "scan":
        yield _scan(lake, me, rules, "decide")
    elif me.pc == "decide":
        yield decide(lake, me, rules)
    elif me.pc == "set":
        yield _set(lake, me, rules)
    else:
        yield _check(lake, me, rules, "scan")


def _decide_create(lake: StoreState, me: Local, rules: Rules) -> Step:
    """Evaluates the condition on the newest row, after another read of the record."""
    if rules.has("condition verifies") and not lake.record.same_layers(me.record):
        return _again(lake, me, rules, "scan", "the record changed")
    assert me.value is not None
    if me.value == me.number:
        return _own_row(lake, me, rules, "own row")
    if not rules.is_absent(me.value):
        return _refuse(lake, me, rules, "exists")
    return "finds nothing", lake, me._replace(pc="set", judged=me.record.moves), None


def _decide_delete_if(lake: StoreState, me: Local, rules: Rules) -> Step:
    """Likewise. A listing has no tombstones, so nothing shows who deleted what it lacks."""
    if rules.has("condition verifies") and not lake.record.same_layers(me.record):
        return _again(lake, me, rules, "scan", "the record changed")
    assert me.value is not None
    is_row = me.at < len(me.record.tokens)
    is_own = me.value == me.number
    if not rules.has("delete-if names its operation"):
        is_own = rules.is_absent(me.value)
    if is_row and is_own:
        return _own_row(lake, me, rules, "delete-if own tombstone")
    if me.value != rules.deleted_by(me.number):
        return _refuse(lake, me, rules, "is another one, or none")
    return "finds what it expects", lake, me._replace(pc="set", judged=me.record.moves), None


def _own_row(lake: StoreState, me: Local, rules: Rules, guard: str) -> Step:
    """Acknowledges the row in the staging token; writes one from beneath there again."""
    if me.at == 0 or not rules.has(guard):
        return "finds its own row", lake.acknowledges(me.number), me.ends(), None
    if me.record.moves != me.judged and rules.has("moved is unknown"):
        return "the head was moved; outcome unknown", lake, me.ends(), None
    return "finds its own row beneath", lake, me._replace(pc="set"), None


def _refuse(lake: StoreState, me: Local, rules: Rules, why: str) -> Step:
    """Says that nothing was done; once its row was there, that the outcome is unknown."""
    if me.wrote and rules.has("written is unknown"):
        return f"{why}; outcome unknown", lake, me.ends(), None
    told = lake._replace(refused=lake.refused | {me.number})
    return f"{why}: is refused", told, me.ends(), None


def _set(lake: StoreState, me: Local, rules: Rules) -> Step:
    """Sets the row if it is still the one that was read; otherwise sees the row that won."""
    token = me.record.staging
    there = lake.tokens[token]
    compares = "delete-if compares" if rules.is_delete_if(me.number) else "condition compares"
    if there != me.row and rules.has(compares):
        if there is None:
            return _again(lake, me, rules, "scan", "its token is gone")
        lost = me._replace(pc="decide", value=there, row=there, at=0)
        return f"loses to {there}", lake, lost, None
    names = lake.record.tokens
    beneath = lake.beneath(
        names[names.index(token) :] if token in names else (), lake.record, me.number
    )
    unseen = token in names and beneath in lake.acked and not rules.is_absent(beneath)
    # Allowed: it judged by the tombstone of a delete that is under way, and that came too late for a fold.
    unseen &= not me.value or not rules.is_absent(me.value) or me.value in lake.acked
    if rules.is_delete_if(me.number):
        unseen = token in names and beneath in lake.acked and beneath != rules.deleted_by(me.number)
    mine = frozenset((me.number,))
    blind = lake.blind | mine if unseen else lake.blind - mine
    written = lake.with_row(token, me.number)._replace(blind=blind)
    if there is not None and there != me.number:
        written = written.covers(me.number, there)
    return f"sets its row in T{token}", written, me._replace(pc="check", wrote=True), None
