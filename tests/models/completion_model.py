"""An explicit-state model of completing a multipart upload once (docs/design/protocol.md, "Uploads").

One branch, one key, one upload. Every request to the KV is one atomic step; all interleavings are explored
breadth-first, so a trace is a shortest one. An attempt of the completion may stop for good at any step, as if
its process died, or continue much later, as if its process hung.

    python -m tests.models.completion_model            the table of guards
    python -m tests.models.completion_model NAME       one guard off, with its trace

Values of the key: 0 for the value before, `UPLOAD`, and one value for each PUT (a PUT also stands for a
delete: a tombstone is a row like any other) and each creation, for which 0 is an absent key.

Promises in every state:
- *once*: an acknowledged PUT that replaced the upload is not replaced by the upload again;
- *stays covered*: after an acknowledged PUT was visible beside an acknowledged completion, the upload never is again;
- *kept*: after the completion was acknowledged, the key has the upload or a PUT that was not acknowledged
  before the completion began;
- *put kept*: an acknowledged PUT is visible, or a write that did not end before that PUT began;
- *condition kept*: after a creation (`If-None-Match`) and the completion were both acknowledged, the creation
  is not visible: it began on an absent key, so the upload came after it.
"""

# ruff: noqa: T201 - it is a command

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from tests.models.completion_state import UPLOAD, Attempt, Local, StoreState, Token

STATES_MAX = 250_000

GUARDS = {
    "designates": "an attempt records its token in the upload before it writes there",
    "fences": "a later attempt seals the token that an earlier one may still write to plainly",
    "notes": "a plain row leaves a note beside it, in the same atomic group",
    "verifies": "the record is read again after the layers and the notes were",
    "compares": "a later attempt compares-and-sets its row over the one that it read",
    "rows first": "notes are read after the row that the comparison expects",
    "rivals": "an upload that was written over is not done while a comparison may land on the newer row",
    "unchanged": "it is done only if the upload names no other attempt than those that were looked at",
    "once": "an upload that was written over is done, not written again",
    "doubts": "an upload that a conditional write of another token covers is not taken for written over",
    "carries": "a row of another writer in a sealed token is no proof that the upload was written over",
    "own rows only": "a completion sets its own row again, and no other writer's: a merge may have come between",
    "own attempt": "a comparison that lost withdraws an attempt only if it designated one itself",
    "rechecks": "the row counts only if a record read after it still names its token",
}


Step = tuple[str, StoreState, Local]


class Model:
    """The protocol with some guards off."""

    def __init__(self, processes: tuple[str, ...], *off: str, tries: int = 1) -> None:
        unknown = set(off) - set(GUARDS)
        assert not unknown, f"no such guard: {unknown}"
        self.off = set(off)
        self.tries = tries
        self.locals = tuple(Local(kind, number) for number, kind in enumerate(processes, 1))
        self.deletes = {number for number, kind in enumerate(processes, 1) if kind == "delete"}

    def has(self, guard: str) -> bool:
        """Whether a guard is on."""
        return guard not in self.off

    # ---- processes

    def steps(self, lake: StoreState, me: Local) -> Iterator[Step]:
        """Yields all next steps of one process."""
        if me.pc != "end":
            yield from getattr(self, f"_{me.kind}")(lake, me)

    def _put(self, lake: StoreState, me: Local) -> Iterator[Step]:
        if me.pc == "begin":
            begun = replace(lake, before=(*lake.before, (me.number, lake.acked)))
            if lake.upload_acked:
                begun = replace(begun, upload_done_before=lake.upload_done_before | {me.number})
            yield "reads the record", begun, replace(me, pc="write", token=lake.staging)
        elif me.pc == "write":
            assert me.token is not None
            token = replace(lake.tokens[me.token], row=me.number)
            yield (
                f"writes its row to T{me.token}",
                lake.with_token(me.token, token),
                replace(me, pc="check"),
            )
        elif lake.staging == me.token:
            told = replace(lake, acked=lake.acked | {me.number})
            yield "is acknowledged", told, replace(me, pc="end")
        elif me.tries < self.tries:
            again = replace(me, pc="write", token=lake.staging, tries=me.tries + 1)
            yield "met a seal, writes again", lake, again
        else:
            yield "gives up", lake, replace(me, pc="end")

    def _delete(self, lake: StoreState, me: Local) -> Iterator[Step]:
        """A tombstone over an absent key: a row like a PUT's, which changes no commit."""
        yield from self._put(lake, me)

    def _create(self, lake: StoreState, me: Local) -> Iterator[Step]:
        """A conditional write: on a new token, over an absent key."""
        if me.pc == "begin":
            lake = replace(lake, creations=lake.creations | {me.number})
            sealed = lake.seal()
            record = (sealed.staging, sealed.sealed, sealed.committed)
            yield f"seals T{lake.staging}", sealed, replace(me, pc="look", record=record)
            return
        assert me.record is not None
        if me.pc == "look":
            rows = [lake.tokens[token].row for token in (me.record[0], *me.record[1])]
            newest = next((row for row in rows if row is not None), me.record[2])
            yield f"reads {newest}", lake, replace(me, pc="judge", read=newest)
        elif me.pc == "judge":
            if (lake.staging, lake.sealed, lake.committed) != me.record or me.read != 0:
                yield "gives up, or is refused", lake, replace(me, pc="end")
            else:
                yield "its condition holds", lake, replace(me, pc="set")
        elif me.pc == "set":
            token = lake.tokens[me.record[0]]
            if token.row is not None:
                yield "lost to another row", lake, replace(me, pc="end")
            else:
                written = lake.with_token(me.record[0], replace(token, row=me.number))
                yield f"sets its row in T{me.record[0]}", written, replace(me, pc="check")
        elif lake.staging == me.record[0]:
            told = replace(lake, acked=lake.acked | {me.number})
            yield "is acknowledged", told, replace(me, pc="end")
        else:
            yield "met a seal: its outcome is unknown", lake, replace(me, pc="end")

    def _commit(self, lake: StoreState, me: Local) -> Iterator[Step]:
        if me.pc == "begin":
            sealed = lake.seal()
            record = (sealed.staging, sealed.sealed, sealed.committed)
            yield f"seals T{lake.staging}", sealed, replace(me, pc="scan", record=record)
        elif me.pc == "scan":
            assert me.record is not None
            rows = [lake.tokens[token].row for token in me.record[1]]
            value = next((row for row in rows if row is not None), me.record[2])
            yield f"scans: {value}", lake, replace(me, pc="finish", read=value)
        elif me.pc == "finish":
            assert me.record is not None
            assert me.read is not None
            ours = me.record[1]
            if (
                lake.committed == me.record[2]
                and lake.sealed[len(lake.sealed) - len(ours) :] == ours
            ):
                kept = lake.sealed[: len(lake.sealed) - len(ours)]
                made = replace(
                    lake,
                    sealed=kept,
                    committed=me.read,
                    droppable=lake.droppable | set(ours),
                )
                yield "publishes", made, replace(me, pc="end")
            else:
                yield "meets another commit", lake, replace(me, pc="end")

    def _merge(self, lake: StoreState, me: Local) -> Iterator[Step]:
        """Brings another value if the sealed tokens hold nothing, and replaces the staging token (rule 9)."""
        if me.pc == "begin":
            begun = replace(
                lake,
                before=(*lake.before, (me.number, lake.acked)),
                merges=lake.merges | {me.number},
            ).seal()
            record = (begun.staging, begun.sealed, begun.committed)
            yield f"seals T{lake.staging}", begun, replace(me, pc="scan", record=record)
            return
        assert me.record is not None
        if me.pc == "scan":
            rows = [lake.tokens[token].row for token in me.record[1]]
            newest = next((row for row in rows if row is not None), None)
            is_clean = newest is None or (newest in self.deletes and me.record[2] == 0)
            label = "finds nothing uncommitted" if is_clean else "is refused"
            yield label, lake, replace(me, pc="finish" if is_clean else "end")
        elif (lake.staging, lake.sealed, lake.committed) == me.record:
            moved = lake.seal()
            made = replace(
                moved,
                sealed=moved.sealed[:1],
                committed=me.number,
                droppable=lake.droppable | set(me.record[1]),
                acked=lake.acked | {me.number},
            )
            yield "publishes", made, replace(me, pc="end")
        else:
            yield "met another record", lake, replace(me, pc="end")

    def _complete(self, lake: StoreState, me: Local) -> Iterator[Step]:
        step = getattr(self, f"_at_{me.pc.replace(' ', '_')}")
        yield from step(lake, me)

    # The first attempt writes plainly, with a note.

    def _at_begin(self, lake: StoreState, me: Local) -> Iterator[Step]:
        if not lake.upload_began:
            lake = replace(lake, upload_began=True, acked_before_upload=lake.acked)
        at = replace(me, version=lake.version)
        if lake.completed:
            yield "finds it completed", self._told(lake), replace(me, pc="end")
        elif lake.attempts and self.has("designates"):
            yield (
                f"reads the upload: {lake.attempts}",
                lake,
                replace(at, pc="record", tries_of=lake.attempts),
            )
        else:
            yield "reads the upload", lake, replace(at, pc="designate", token=lake.staging)

    def _at_designate(self, lake: StoreState, me: Local) -> Iterator[Step]:
        assert me.token is not None
        if lake.version != me.version and self.has("designates"):
            yield from self._again(lake, me, "another attempt was quicker")
            return
        attempts = (Attempt(me.token, by_compare=False),)
        begun = replace(lake, attempts=attempts, version=lake.version + 1)
        yield (
            f"designates T{me.token}",
            begun,
            replace(me, pc="write", version=begun.version, tries_of=attempts),
        )

    def _at_write(self, lake: StoreState, me: Local) -> Iterator[Step]:
        assert me.token is not None
        written = lake.with_token(me.token, Token(UPLOAD, note=True))
        yield f"writes its row to T{me.token}", written, replace(me, pc="check")

    def _at_check(self, lake: StoreState, me: Local) -> Iterator[Step]:
        if lake.staging == me.token or not self.has("rechecks"):
            yield "its token still takes writes", lake, replace(me, pc="answer")
        elif self.has("compares"):
            yield "its token was sealed meanwhile", lake, replace(me, pc="record")
        else:
            yield from self._again(
                lake, replace(me, token=lake.staging), "writes once more", pc="write"
            )

    # Every later attempt uses compare-and-set, and first settles the outcome of the earlier ones.

    def _at_record(self, lake: StoreState, me: Local) -> Iterator[Step]:
        record = (lake.staging, lake.sealed, lake.committed)
        order = ("row", "look", "first decide")
        yield "reads the record", lake, replace(me, pc="row", record=record, order=order)

    def _at_first_decide(self, lake: StoreState, me: Local) -> Iterator[Step]:
        """Before anything is sealed: the upload landed, and its row or a newer one is in the staging token."""
        is_done = me.fate == "landed" and me.row is not None
        if not is_done or (lake.staging, lake.sealed, lake.committed) != me.record:
            yield "has to seal", lake, replace(me, pc="fence", fate="", row=None, read=None)
        elif me.row in lake.creations and me.newest_in not in me.landed and self.has("doubts"):
            yield "a conditional write may have missed it: cannot tell", lake, replace(me, pc="end")
        elif self._has_rival(me):
            yield "a comparison may land on the newer row: cannot tell", lake, replace(me, pc="end")
        else:
            pc = "answer" if me.row == UPLOAD else "answer covered"
            yield "it landed, and its token takes writes", lake, replace(me, pc=pc)

    def _at_fence(self, lake: StoreState, me: Local) -> Iterator[Step]:
        plain = {each.token for each in me.tries_of if not each.by_compare}
        if self.has("fences") and lake.staging in plain:
            lake = lake.seal()
        record = (lake.staging, lake.sealed, lake.committed)
        order = ("row", "look", "beneath") if self.has("rows first") else ("look", "row", "beneath")
        yield (
            "reads the record again",
            lake,
            replace(me, pc=order[0], record=record, order=(*order, "decide")),
        )

    def _at_row(self, lake: StoreState, me: Local) -> Iterator[Step]:
        assert me.record is not None
        staging = me.record[0]
        row = lake.tokens[staging].row
        found = replace(me, pc=_after(me), row=row, read=row, newest_in=staging)
        yield f"its staging token has {row}", lake, found

    def _at_look(self, lake: StoreState, me: Local) -> Iterator[Step]:
        assert me.record is not None
        named = (me.record[0], *me.record[1])
        fates = {each.token: self._fate(lake, each, named) for each in me.tries_of}
        fate = next(
            (each for each in ("landed", "unknown") if each in fates.values()), "not landed"
        )
        landed = frozenset(token for token, each in fates.items() if each == "landed")
        yield (
            f"earlier attempts: {fate}",
            lake,
            replace(me, pc=_after(me), fate=fate, landed=landed),
        )

    def _at_beneath(self, lake: StoreState, me: Local) -> Iterator[Step]:
        assert me.record is not None
        if me.row is not None:
            yield "no need to look beneath", lake, replace(me, pc="decide")
            return
        token = next((each for each in me.record[1] if lake.tokens[each].row is not None), None)
        newest = me.record[2] if token is None else lake.tokens[token].row
        yield f"newest is {newest}", lake, replace(me, pc="decide", read=newest, newest_in=token)

    def _at_decide(self, lake: StoreState, me: Local) -> Iterator[Step]:
        assert me.record is not None
        assert me.read is not None
        if self.has("verifies") and (lake.staging, lake.sealed, lake.committed) != me.record:
            yield from self._again(lake, me, "the record changed", pc="record")
        elif me.read == UPLOAD and me.row == UPLOAD:
            yield "its row is in the staging token", lake, replace(me, pc="answer")
        elif (
            me.read in lake.creations
            and me.fate == "landed"
            and me.newest_in not in me.landed
            and self.has("doubts")
        ):
            yield "a conditional write may have missed it: cannot tell", lake, replace(me, pc="end")
        elif me.read != UPLOAD and me.fate == "landed" and self.has("once"):
            if (me.row is not None or not self.has("carries")) and self._has_rival(me):
                yield (
                    "a comparison may land on the newer row: cannot tell",
                    lake,
                    replace(me, pc="end"),
                )
            elif me.row is not None or not self.has("carries"):
                yield "it was written over", lake, replace(me, pc="answer covered")
            elif not self.has("own rows only"):
                yield (
                    "it was written over in a sealed token",
                    lake,
                    replace(me, pc="set", token=me.record[0], value=me.read, has_designated=False),
                )
            else:
                yield (
                    "it was written over in a sealed token: cannot tell",
                    lake,
                    replace(me, pc="end"),
                )
        elif me.read != UPLOAD and me.fate == "unknown" and self.has("once"):
            yield "cannot tell", lake, replace(me, pc="end")
        elif me.read == UPLOAD:
            yield (
                "it is the newest, in a sealed token or a commit",
                lake,
                replace(me, pc="set", token=me.record[0], value=UPLOAD, has_designated=False),
            )
        else:
            yield (
                "will set the row",
                lake,
                replace(me, pc="extend", token=me.record[0], value=UPLOAD),
            )

    def _at_extend(self, lake: StoreState, me: Local) -> Iterator[Step]:
        assert me.token is not None
        if lake.version != me.version and self.has("designates"):
            yield from self._again(lake, me, "another attempt was quicker")
            return
        attempts = (*me.tries_of, Attempt(me.token, by_compare=True))
        begun = replace(lake, attempts=attempts, version=lake.version + 1)
        yield (
            f"designates T{me.token}",
            begun,
            replace(me, pc="set", version=begun.version, tries_of=attempts, has_designated=True),
        )

    def _at_set(self, lake: StoreState, me: Local) -> Iterator[Step]:
        assert me.token is not None
        if self.has("compares") and lake.tokens[me.token].row != me.row:
            if me.has_designated or not self.has("own attempt"):
                yield "another row came", lake, replace(me, pc="withdraw")
            else:
                yield from self._again(lake, me, "another row came")
        else:
            token = replace(lake.tokens[me.token], row=me.value)
            yield (
                f"sets {me.value} in T{me.token}",
                lake.with_token(me.token, token),
                replace(me, pc="set done"),
            )

    def _at_withdraw(self, lake: StoreState, me: Local) -> Iterator[Step]:
        if lake.attempts[-1:] == me.tries_of[-1:]:
            lake = replace(lake, attempts=lake.attempts[:-1], version=lake.version + 1)
        yield from self._again(lake, me, "withdraws the last attempt")

    def _at_set_done(self, lake: StoreState, me: Local) -> Iterator[Step]:
        if lake.staging == me.token:
            yield "its token still takes writes", lake, replace(me, pc="answer")
        else:
            yield from self._again(lake, me, "its token was sealed meanwhile", pc="record")

    def _at_answer(self, lake: StoreState, me: Local) -> Iterator[Step]:
        done = replace(lake, completed=True, version=lake.version + 1)
        yield "records the answer", self._told(done), replace(me, pc="end")

    def _at_answer_covered(self, lake: StoreState, me: Local) -> Iterator[Step]:
        if lake.version != me.version and not lake.completed and self.has("unchanged"):
            yield from self._again(lake, me, "another attempt began")
        else:
            yield from self._at_answer(lake, me)

    def _has_rival(self, me: Local) -> bool:
        """Whether another attempt may still set its row over the newer one that covers the upload."""
        tokens = {each.token for each in me.tries_of if each.by_compare}
        return self.has("rivals") and me.row != UPLOAD and me.newest_in in tokens

    def _fate(self, lake: StoreState, attempt: Attempt, named: tuple[int, ...]) -> str:
        """Returns the fate of an earlier attempt, according to the token that it was to write to."""
        token = lake.tokens[attempt.token]
        if attempt.token not in named:
            return "unknown"
        if token.row == UPLOAD:
            return "landed"
        if token.row is None:
            return "not landed"
        if attempt.by_compare or not self.has("notes"):
            return "unknown" if self.has("notes") else "not landed"
        return "landed" if token.note else "not landed"

    def _again(self, lake: StoreState, me: Local, why: str, pc: str = "begin") -> Iterator[Step]:
        if me.tries < self.tries + 1:
            again = replace(me, pc=pc, tries=me.tries + 1, record=None, read=None, row=None)
            again = replace(again, fate="", landed=frozenset(), newest_in=None)
            yield why, lake, again
        else:
            yield f"{why}: gives up", lake, replace(me, pc="end")

    @staticmethod
    def _told(lake: StoreState) -> StoreState:
        return replace(lake, upload_acked=True)

    # ---- promises

    def broken(self, lake: StoreState) -> str | None:
        """Returns the promise that a state breaks."""
        shown = lake.visible()
        if shown == UPLOAD and (twice := lake.undone):
            return (
                f"once: PUT {set(twice)} was acknowledged, and the upload replaced it a second time"
            )
        if shown == UPLOAD and lake.was_covered:
            return (
                "stays covered: both were acknowledged, the PUT was read, and the upload came back"
            )
        if lake.upload_acked and (shown == 0 or shown in lake.acked_before_upload):
            return f"kept: the completion was acknowledged, and the key shows {shown}"
        if lake.upload_acked and shown in lake.creations & lake.acked:
            return f"condition kept: creation {shown} was acknowledged beside the completion, and shows"
        over = dict(lake.before)
        for put in lake.acked - lake.creations:
            lost = shown == 0 or (shown > 0 and shown in over[put])
            if lost or (shown == UPLOAD and put in lake.upload_done_before):
                return f"put kept: PUT {put} was acknowledged, and the key shows {shown}"
        return None

    def check(self, states_max: int = STATES_MAX) -> tuple[str | None, int, list[str]]:
        """Explores all states; returns the first broken promise, the number of states, and the steps to it."""
        start = (StoreState(), self.locals)
        seen: dict[tuple[StoreState, tuple[Local, ...]], tuple[object, str] | None] = {start: None}
        queue = deque([start])
        while queue:
            state = queue.popleft()
            lake, processes = state
            for at, me in enumerate(processes):
                for label, after, then in self.steps(lake, me):
                    after = after.looked_at()  # noqa: PLW2901 - the same state, and what readers saw
                    new = (after, (*processes[:at], then, *processes[at + 1 :]))
                    if new in seen:
                        continue
                    seen[new] = (state, f"{me.kind}{me.number} {label}")
                    if (why := self.broken(after)) is not None:
                        return why, len(seen), _trace(seen, new)
                    queue.append(new)
            for token in lake.droppable:
                if lake.tokens[token] != Token():
                    dropped = (lake.with_token(token, Token()), processes)
                    if dropped not in seen:
                        seen[dropped] = (state, f"drops T{token}")
                        queue.append(dropped)
            if len(seen) > states_max:
                return "no answer: too many states", len(seen), []
        return None, len(seen), []


def _after(me: Local) -> str:
    return me.order[me.order.index(me.pc) + 1]


def _trace(seen: dict, state: object) -> list[str]:  # type: ignore[type-arg]  # states of any shape
    steps: list[str] = []
    while (link := seen[state]) is not None:
        state, label = link
        steps.append(label)
    return steps[::-1]


SCENARIOS = (
    ("complete", "complete", "put"),
    ("complete", "complete", "put", "commit"),
    ("complete", "put", "commit", "commit"),
    ("complete", "complete", "create"),
)


def main() -> int:
    """Prints the table, or one trace."""
    off = sys.argv[1:]
    for scenario in SCENARIOS:
        for guard in [*off] or ["", *GUARDS]:
            why, states, steps = Model(scenario, *([guard] if guard else [])).check()
            name = f"{'+'.join(scenario):32} without {guard or '-':12}"
            print(f"{name} {states:9,} states: {why or 'holds'}", flush=True)
            if off:
                print(*(f"    {step}" for step in steps), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
