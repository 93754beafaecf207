"""Retention rules of a repository: which commits keep their objects (docs/operate/retention.md).

    {"branches": [{"match": "main", "keep_days": 365, "keep_commits": 100}, {"match": "exp-*", "keep_days": 7},
                  {"match": "*", "except": ["main", "exp-*"], "keep_days": 30}],
     "tags": [{"match": "nightly-*", "keep_days": 90}],
     "detached": {"keep_days": 30},
     "objects": {"keep_listed_on": ["main"], "keep_written_days": 30, "keep_read_days": 90},
     "uploads": {"abort_days": 7}}

Without rules every commit keeps its objects. Everything that no rule covers is kept: a branch that no rule matches
keeps its whole history, and a tag that no rule matches stays. Without `detached`, commits that are in the history of no
branch stay, too. Without `uploads`, a multipart upload stays open until a client completes or aborts it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tarn.core.clock import DAY_US
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.glob import check_glob, match_glob
from tarn.core.ids import parse_branch_id

__all__ = [
    "BRANCH_RULES_MAX",
    "DAYS_MAX",
    "EXCEPTIONS_MAX",
    "LISTED_ON_MAX",
    "READ_DAYS_MAX",
    "KEEP_EVERYTHING",
    "RETENTION_BYTES_MAX",
    "TAG_RULES_MAX",
    "BranchRule",
    "ObjectRules",
    "Retention",
    "TagRule",
    "parse_retention",
    "retention_to_json",
]

BRANCH_RULES_MAX: Final = 100
EXCEPTIONS_MAX: Final = 100
"""Most patterns in the exceptions of all rules together."""
TAG_RULES_MAX: Final = 100
LISTED_ON_MAX: Final = 10
DAYS_MAX: Final = 36_500
READ_DAYS_MAX: Final = 180
"""The journal of reads keeps this many days."""
COMMITS_MAX: Final = 1_000_000
RETENTION_BYTES_MAX: Final = 32 << 10
_PATTERN_BYTES_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class BranchRule:
    """The commits that the branches matching a pattern keep of their history: those that either limit keeps.

    Attributes:
        match: pattern of branch names (`tarn.core.glob`).
        keep_days: keeps the commits that were the head of the branch in the last so many days; None: age keeps none.
        keep_commits: number of newest commits to keep; the head is always kept.
        exceptions: patterns of branches for which the rule does not hold, although they match.
    """

    match: str
    keep_days: int | None = None
    keep_commits: int = 1
    exceptions: tuple[str, ...] = ()

    def holds_for(self, branch_id: str) -> bool:
        """Whether the rule is one of those of a branch."""
        name = pa.array([branch_id])
        return bool(match_glob(name, self.match)[0]) and not any(
            match_glob(name, each)[0] for each in self.exceptions
        )

    def __str__(self) -> str:
        limits = [] if self.keep_days is None else [f"keep_days {self.keep_days}"]
        if self.keep_commits > 1 or not limits:
            limits.append(f"keep_commits {self.keep_commits}")
        return f"branches {self.match}: {', '.join(limits)}"


@dataclass(frozen=True, slots=True)
class TagRule:
    """How long the tags that match a pattern stay.

    Attributes:
        match: pattern of tag names (`tarn.core.glob`).
        keep_days: days after their creation.
    """

    match: str
    keep_days: int

    def __str__(self) -> str:
        return f"tags {self.match}: keep_days {self.keep_days}"


@dataclass(frozen=True, slots=True)
class ObjectRules:
    """The objects that an expired commit keeps: those that any of the rules keeps.

    Attributes:
        listed_on: names of branches: keeps the objects at paths where the head of one of them has an object.
        written_days: keeps objects that were written in the last so many days; None: no such rule.
        read_days: keeps objects that were, or may have been, read in the last so many days; None: no such rule.
    """

    listed_on: tuple[str, ...] = ()
    written_days: int | None = None
    read_days: int | None = None

    def __bool__(self) -> bool:
        """Whether an expired commit may keep an object."""
        return bool(self.listed_on) or (self.written_days or self.read_days) is not None

    def written_since_us(self, now_us: int) -> int:
        """Returns the time since which an object must be written to be kept, in Unix microseconds; 0: there is no
        rule."""
        return 0 if self.written_days is None else max(now_us - self.written_days * DAY_US, 1)

    def read_since_us(self, now_us: int) -> int:
        """Returns the time since which an object must be read to be kept, in Unix microseconds; 0: there is no rule."""
        return 0 if self.read_days is None else max(now_us - self.read_days * DAY_US, 1)


@dataclass(frozen=True, slots=True)
class Retention:
    """The rules of a repository.

    Attributes:
        branches: rules of branches. A commit that any rule of any branch keeps is kept. A branch for which no rule
            holds keeps its whole history.
        detached_days: how long commits are kept that are in the history of no branch; None: for ever.
        tags: rules of tags. Of those that match a tag, the longest decides; without one it stays for ever.
        objects: rules of objects of expired commits.
        abort_upload_days: days after which an open multipart upload is aborted; None: never.
    """

    branches: tuple[BranchRule, ...] = ()
    detached_days: int | None = None
    tags: tuple[TagRule, ...] = ()
    objects: ObjectRules = ObjectRules()
    abort_upload_days: int | None = None

    def __bool__(self) -> bool:
        """Whether any commit or tag may ever expire."""
        return self.expires_commits or bool(self.tags)

    @property
    def expires_commits(self) -> bool:
        """Whether any commit may ever expire."""
        return bool(self.branches) or self.detached_days is not None

    @property
    def has_exceptions(self) -> bool:
        """Whether a rule has a form that earlier releases refuse."""
        return any(each.exceptions for each in self.branches)

    def rules_of(self, branch_id: str) -> tuple[BranchRule, ...]:
        """Returns the rules that hold for a branch; none: the branch keeps its whole history."""
        return tuple(each for each in self.branches if each.holds_for(branch_id))

    def rules_of_tags(self, tag_ids: Sequence[str]) -> list[TagRule | None]:
        """Returns the rule of each tag; None: it stays for ever."""
        found: list[TagRule | None] = [None] * len(tag_ids)
        names = pa.array(tag_ids, pa.string())
        for rule in sorted(self.tags, key=lambda each: each.keep_days):  # the longest comes last
            for number in match_glob(names, rule.match).nonzero()[0].tolist():
                found[number] = rule
        return found


KEEP_EVERYTHING: Final = Retention()


def parse_retention(text: str) -> Retention:
    """Parses rules; the empty text stands for no rules.

    Raises:
        TarnError: INVALID: it is no JSON of this form, has an unknown or a repeated field, or a value out of bounds.
    """
    if len(text.encode()) > RETENTION_BYTES_MAX:
        raise _invalid(f"they have more than {RETENTION_BYTES_MAX} bytes", "")
    if not text.strip():
        return KEEP_EVERYTHING
    try:
        found = json.loads(text, object_pairs_hook=_no_repeats, parse_constant=_no_constant)
        # No lone surrogates: no message could hold them.
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _invalid(f"they are no JSON: {str(error)[:200]}", "") from error
    fields = _object(found, "", {"branches", "detached", "tags", "objects", "uploads"})
    branches = _list(fields, "branches", BRANCH_RULES_MAX)
    rules = tuple(_branch_rule(each, f"branches[{number}]") for number, each in enumerate(branches))
    if sum(len(each.exceptions) for each in rules) > EXCEPTIONS_MAX:
        text = f"the rules of branches have more than {EXCEPTIONS_MAX} exceptions in all"
        raise _invalid(text, "branches")
    tags = _list(fields, "tags", TAG_RULES_MAX)
    tag_rules = tuple(_tag_rule(each, f"tags[{number}]") for number, each in enumerate(tags))
    days = _only_days(fields, "detached", "keep_days")
    abort_days = _only_days(fields, "uploads", "abort_days")
    return Retention(rules, days, tag_rules, _object_rules(fields), abort_days)


def retention_to_json(retention: Retention) -> str:
    """Returns rules as JSON, which `parse_retention` reads; the empty text for no rules."""
    if retention == KEEP_EVERYTHING:
        return ""
    fields: dict[str, object] = {}
    if retention.branches:
        fields["branches"] = [_rule_to(each) for each in retention.branches]
    if retention.detached_days is not None:
        fields["detached"] = {"keep_days": retention.detached_days}
    if retention.tags:
        fields["tags"] = [
            {"match": each.match, "keep_days": each.keep_days} for each in retention.tags
        ]
    if retention.objects:
        fields["objects"] = _objects_to(retention.objects)
    if retention.abort_upload_days is not None:
        fields["uploads"] = {"abort_days": retention.abort_upload_days}
    return json.dumps(fields, indent=2, ensure_ascii=False)


def _rule_to(rule: BranchRule) -> dict[str, object]:
    fields: dict[str, object] = {"match": rule.match}
    if rule.exceptions:
        fields["except"] = list(rule.exceptions)
    if rule.keep_days is not None:
        fields["keep_days"] = rule.keep_days
    if rule.keep_commits > 1 or rule.keep_days is None:
        fields["keep_commits"] = rule.keep_commits
    return fields


def _objects_to(rules: ObjectRules) -> dict[str, object]:
    fields: dict[str, object] = {}
    if rules.listed_on:
        fields["keep_listed_on"] = list(rules.listed_on)
    if rules.written_days is not None:
        fields["keep_written_days"] = rules.written_days
    if rules.read_days is not None:
        fields["keep_read_days"] = rules.read_days
    return fields


def _object_rules(rules: Mapping[str, Any]) -> ObjectRules:
    if "objects" not in rules:
        return ObjectRules()
    known = {"keep_listed_on", "keep_written_days", "keep_read_days"}
    fields = _object(rules["objects"], "objects", known)
    names = fields.get("keep_listed_on", [])
    is_list = isinstance(names, list) and all(isinstance(each, str) for each in names)
    if not is_list or len(names) > LISTED_ON_MAX:
        text = f"objects.keep_listed_on must be a list of at most {LISTED_ON_MAX} names of branches"
        raise _invalid(text, "objects.keep_listed_on")
    for name in names:
        parse_branch_id(name)
    found = ObjectRules(
        tuple(names),
        _number(fields, "objects", "keep_written_days", DAYS_MAX),
        _number(fields, "objects", "keep_read_days", READ_DAYS_MAX),
    )
    if not found:
        text = "objects needs keep_listed_on, keep_written_days or keep_read_days"
        raise _invalid(text, "objects")
    return found


def _branch_rule(value: object, where: str) -> BranchRule:
    fields = _object(value, where, {"match", "except", "keep_days", "keep_commits"})
    match = _pattern(fields.get("match"), f"{where}.match")
    exceptions = fields.get("except", [])
    if not isinstance(exceptions, list) or ("except" in fields and not exceptions):
        text = f"{where}.except must be a list of patterns; leave it out for none"
        raise _invalid(text, f"{where}.except")
    excepted = tuple(_pattern(each, f"{where}.except") for each in exceptions)
    days = _number(fields, where, "keep_days", DAYS_MAX)
    commits = _number(fields, where, "keep_commits", COMMITS_MAX)
    if days is None and commits is None:
        raise _invalid(f"{where} needs keep_days or keep_commits", where)
    return BranchRule(match, days, commits or 1, excepted)


def _tag_rule(value: object, where: str) -> TagRule:
    fields = _object(value, where, {"match", "keep_days"})
    match = _pattern(fields.get("match"), f"{where}.match")
    days = _number(fields, where, "keep_days", DAYS_MAX)
    if days is None:
        raise _invalid(f"{where} needs keep_days", where)
    return TagRule(match, days)


def _pattern(value: object, where: str) -> str:
    if not isinstance(value, str) or len(value.encode()) > _PATTERN_BYTES_MAX:
        raise _invalid(f"{where} must be a pattern of at most {_PATTERN_BYTES_MAX} bytes", where)
    check_glob(value)
    return value


def _list(fields: Mapping[str, Any], name: str, most: int) -> list[object]:
    found = fields.get(name, [])
    if not isinstance(found, list) or len(found) > most:
        raise _invalid(f"{name} must be a list of at most {most} rules", name)
    return found


def _only_days(fields: Mapping[str, Any], where: str, name: str) -> int | None:
    """Returns the number of days of a rule that has only that; None if there is no such rule."""
    if where not in fields:
        return None
    days = _number(_object(fields[where], where, {name}), where, name, DAYS_MAX)
    if days is None:
        raise _invalid(f"{where}.{name} is missing", f"{where}.{name}")
    return days


def _object(value: object, where: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _invalid(f"{where or 'the rules'} must be an object", where)
    for name in value:
        if name not in known:
            text = f"{where or 'the rules'} has the unknown field {name[:80]!r}; known: {', '.join(sorted(known))}"
            raise _invalid(text, where)
    return value


def _number(fields: Mapping[str, Any], where: str, name: str, most: int) -> int | None:
    if name not in fields:
        return None
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise _invalid(f"{where}.{name} must be a whole number from 1 to {most}", f"{where}.{name}")
    return value


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a field twice")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _invalid(text: str, field: str) -> TarnError:
    return TarnError(
        Kind.INVALID, Reason.INVALID_ARGUMENT, f"invalid retention rules: {text}", field=field
    )
