"""Rules of the machine that set the rules of the repository: protections, hidden branches, read-only."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import rule
from lake_model import RefusedError
from machine_base import NAMES, numbers, rarely
from machine_merges import Merges
from model_rules import Protection

from tarn_proto.graveler.v1 import settings_service_pb2 as pb

_KINDS = {
    "write": pb.CHANGE_KIND_WRITE,
    "commit": pb.CHANGE_KIND_COMMIT,
    "merge": pb.CHANGE_KIND_MERGE,
    "delete": pb.CHANGE_KIND_DELETE,
    "force": pb.CHANGE_KIND_FORCE,
}
_PATTERNS = ["*", "main", "ma?n", "d*", "?tl", "fi?"]

kinds = st.sampled_from(["commit", "write", "force", "merge", "delete"])
exemptions = st.sampled_from(["", "", "", "user", "role"])
protections = st.dictionaries(
    st.sampled_from(_PATTERNS),
    st.tuples(st.frozensets(kinds, min_size=1, max_size=3), exemptions),
    min_size=1,
    max_size=2,
)


class Settings(Merges):
    """Changes the rules and the default branch, and reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.etags: list[str] = []

    @rule(
        own=st.tuples(st.frozensets(kinds, max_size=3), exemptions),
        wanted=st.one_of(st.just({}), protections),
        hidden=st.lists(st.sampled_from(_PATTERNS[1:5]), max_size=2, unique=True),
        is_outdated=rarely,
        at=numbers,
        by=numbers,
    )
    def set_rules(
        self,
        own: tuple[frozenset[str], str],
        wanted: dict[str, tuple[frozenset[str], str]],
        hidden: list[str],
        is_outdated: bool,
        at: int,
        by: int,
    ) -> None:
        """Replaces the rules, and tries what they may block on one branch: all but writes at once.

        Args:
            own: kinds to protect the branch from, perhaps none, and how the caller is exempt.
            wanted: the same for patterns.
            hidden: patterns of hidden branches.
            is_outdated: use an old ETag.
            at: chooses the branch.
            by: chooses the replica.
        """
        self.set_read_only(False, by)
        wanted = {self.branch(at): own, **wanted} if own[0] else wanted
        made = tuple(Protection(pattern, *each) for pattern, each in sorted(wanted.items()))
        self.put(at, "d", 1 + by % 4, 2, by + 1)  # the other replica caches the former rules
        is_outdated = is_outdated and len(self.etags) > 1

        def expected() -> None:
            if is_outdated:
                raise RefusedError("SETTINGS_CHANGED")
            self.model.rules = replace(self.model.rules, protections=made, hidden=tuple(hidden))
            self.are_rules_settled = False

        work = self.client(by).set_rules(
            self.call,
            self.repository,
            protections=map(_message, made),
            hidden_patterns=hidden,
            if_match=self.etags[-2 if is_outdated else -1],
        )
        self.attempt("set_rules", expected, work)
        self.commit(at, by + 1, allow_empty=True)
        self.read_rules(by + 1)
        self.put(at, "d", 1 + by % 4, 1, by)
        self.delete(at, "e/1", by + 1)
        self.reset(at, None, "e/1", by)
        self.apply(at, 1, 1, None, True, True, by, is_clean=True)
        self.move(at, at, at, True, True, by + 1)

    @rule(at=numbers, name=st.sampled_from(NAMES), stays=rarely, by=numbers)
    def freeze(self, at: int, name: str, stays: bool, by: int) -> None:
        """Makes the repository read-only, tries to change it, and mostly makes it writable again."""
        self.set_read_only(True, by)
        self.commit(at, by + 1, allow_empty=True)
        self.put(at, "d", 1 + by % 4, 1, by)
        self.create_tag("v1", at, by)
        self.delete_branch(name, by)
        self.restore_branch(name, by + 1)
        self.move(at, at, at, True, True, by)
        self.set_read_only(stays, by + 1)

    def set_read_only(self, is_read_only: bool, by: int) -> None:
        self.model.rules = replace(self.model.rules, is_read_only=is_read_only)
        self.are_rules_settled = False
        self.run(self.client(by).set_read_only(self.call, self.repository, is_read_only))
        self.read_rules(by + 1)

    @rule(name=st.sampled_from(NAMES), expected=st.sampled_from(["", "", *NAMES]), by=numbers)
    def set_default(self, name: str, expected: str, by: int) -> None:
        # Other replicas may hide the branch for as long as they cache the repository.
        self.are_rules_settled = False
        work = self.client(by).set_default_branch(
            self.call, self.repository, name, expected_branch_id=expected
        )
        self.attempt("set_default", lambda: self.model.set_default(name, expected), work)
        self.read_rules(by + 1)

    def read_rules(self, by: int) -> None:
        found = self.run(self.client(by).get_settings(self.call, self.repository))
        rules = self.model.rules
        assert list(found.protections) == [_message(each) for each in rules.protections]
        assert tuple(found.hidden_patterns) == rules.hidden
        assert found.read_only == rules.is_read_only
        assert found.default_branch_id == self.model.default
        if found.etag not in self.etags:
            self.etags.append(found.etag)
        assert found.etag == self.etags[-1]

    def teardown(self) -> None:
        if self.ids:
            self.settle_rules()
            found = self.run(self.client(1).list_branches(self.call, self.repository))
            assert [each.branch_id for each in found.branches] == [
                name
                for name in sorted(self.model.branches)
                if name == self.model.default or not self.model.rules.hides(name)
            ]
        super().teardown()


def _message(made: Protection) -> pb.Protection:
    return pb.Protection(
        pattern=made.pattern,
        blocked=sorted(_KINDS[kind] for kind in made.blocked),
        exempt_user_ids=["root"] if made.exempts == "user" else [],
        exempt_roles=["Admin"] if made.exempts == "role" else [],
    )
