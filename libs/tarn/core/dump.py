"""The lines of a repository's dump, one JSON object each (`docs/formats/dump.md`). Pure: no input or output.

A line states its `kind`. `to_line` and `from_line` are inverse for every record that Tarn writes. `from_line` trusts
nothing: a dump is a file that a client sends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from tarn.core.change_kind import PROTECTABLE
from tarn.core.commit import Commit, from_json, to_json
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.expiry import RULE_CHARS_MAX, Expiry
from tarn.core.head_change import HeadChange, HeadOperation
from tarn.core.ids import (
    BranchId,
    CommitId,
    TagId,
    parse_branch_id,
    parse_commit_id,
    parse_tag_id,
    parse_user_id,
)
from tarn.core.retention import parse_retention, retention_to_json
from tarn.core.review_rule import ExemptUser, OwnerRule, ReviewRule, StaleApprovals
from tarn.core.rules import Protection, Rules, Settings, check_metadata, check_rules

__all__ = [
    "LINE_BYTES_MAX",
    "BranchLine",
    "ExpiredLine",
    "Line",
    "NoteLine",
    "ReflogLine",
    "TagLine",
    "from_line",
    "to_line",
]

LINE_BYTES_MAX = 1 << 20
"""Greatest size of a line. A commit has at most 128 KiB of text, which JSON makes at most six times as long."""

_NUMBER_MAX = (1 << 62) - 1
_TIME_US_MAX = 253_370_764_800_000_000
"""Begin of the year 9999: the wire ends with it, and a reflog orders its entries by times that only grow."""
_ID_BYTES_MAX = 64

_T = TypeVar("_T", str, int, bool, list[object], dict[str, object])
_KINDS = {kind.value: kind for kind in PROTECTABLE}
_OPERATIONS = {each.value: each for each in HeadOperation}


@dataclass(frozen=True, slots=True)
class BranchLine:
    """A branch, as its record was at one moment.

    Attributes:
        head_sequence: sequence of the newest entry of its reflog; 0 if there is none.
    """

    branch_id: BranchId
    commit_id: CommitId
    create_time_us: int
    head_sequence: int


@dataclass(frozen=True, slots=True)
class TagLine:
    """A tag."""

    tag_id: TagId
    commit_id: CommitId
    create_time_us: int


@dataclass(frozen=True, slots=True)
class ReflogLine:
    """An entry of the reflog of a branch name."""

    branch_id: BranchId
    entry: HeadChange


@dataclass(frozen=True, slots=True)
class NoteLine:
    """The note in the bucket of a commit that became the head of a branch; only of a recovery."""

    branch_id: BranchId
    commit_id: CommitId
    time_us: int


@dataclass(frozen=True, slots=True)
class ExpiredLine:
    """A commit that a retention rule has let go."""

    commit_id: CommitId
    expiry: Expiry


Line = Settings | BranchLine | TagLine | ReflogLine | Commit | NoteLine | ExpiredLine


def to_line(record: Line) -> str:
    """Returns a record as JSON without line breaks; the change id of settings is left out."""
    return json.dumps(_fields(record), ensure_ascii=False, separators=(",", ":"))


def _fields(record: Line) -> dict[str, object]:
    match record:
        case Settings():
            return _settings_to(record)
        case BranchLine():
            return {
                "kind": "branch",
                "branch_id": record.branch_id,
                "commit_id": record.commit_id,
                "create_time_us": record.create_time_us,
                "head_sequence": record.head_sequence,
            }
        case TagLine():
            return {
                "kind": "tag",
                "tag_id": record.tag_id,
                "commit_id": record.commit_id,
                "create_time_us": record.create_time_us,
            }
        case ReflogLine():
            return _entry_to(record)
        case Commit():
            return {"kind": "commit", **json.loads(to_json(record))}
        case ExpiredLine():
            return {
                "kind": "expired",
                "commit_id": record.commit_id,
                "rule": record.expiry.rule,
                "time_us": record.expiry.time_us,
            }
        case NoteLine():
            return {
                "kind": "note",
                "branch_id": record.branch_id,
                "commit_id": record.commit_id,
                "time_us": record.time_us,
            }


def from_line(text: str) -> Line:
    """Returns the record of a line.

    Raises:
        TarnError: INVALID: the line is too long, is not JSON, has an unknown kind, lacks a field, or holds a value that
            Tarn would not store. A commit's id is computed again and compared.
    """
    try:
        size = len(text.encode())
        if size > LINE_BYTES_MAX:
            raise ValueError(f"it has {size} bytes; at most {LINE_BYTES_MAX} are allowed")
        fields = _of(dict, json.loads(text))
        match fields["kind"]:
            case "settings":
                return _settings_from(fields)
            case "branch":
                return BranchLine(
                    parse_branch_id(_text(fields, "branch_id")),
                    parse_commit_id(_text(fields, "commit_id")),
                    _time(fields, "create_time_us"),
                    _number(fields, "head_sequence"),
                )
            case "tag":
                return TagLine(
                    parse_tag_id(_text(fields, "tag_id")),
                    parse_commit_id(_text(fields, "commit_id")),
                    _time(fields, "create_time_us"),
                )
            case "reflog":
                return _entry_from(fields)
            case "commit":
                _time(fields, "create_time_us")
                return from_json(text.encode())
            case "expired":
                expiry = Expiry(_text(fields, "rule")[:RULE_CHARS_MAX], _time(fields, "time_us"))
                return ExpiredLine(parse_commit_id(_text(fields, "commit_id")), expiry)
            case "note":
                return NoteLine(
                    parse_branch_id(_text(fields, "branch_id")),
                    parse_commit_id(_text(fields, "commit_id")),
                    _time(fields, "time_us"),
                )
            case kind:
                raise ValueError(f"its kind {kind!r} is unknown")
    except (TarnError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"it has no field {error}" if isinstance(error, KeyError) else str(error)
        reason = f"line {text[:80]!a} of the dump cannot be used: {why}"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, reason) from error


def _settings_to(settings: Settings) -> dict[str, object]:
    rules = settings.rules
    protections = [
        {
            "pattern": each.pattern,
            "blocked": sorted(each.blocked),
            "exempt_users": _users_to(each.exempt_users),
            "exempt_roles": sorted(each.exempt_roles),
            **({} if each.review is None else {"review": _review_to(each.review)}),
        }
        for each in rules.protections
    ]
    retention = retention_to_json(settings.retention)
    return {
        "kind": "settings",
        "protections": protections,
        "hidden": list(rules.hidden),
        "is_read_only": rules.is_read_only,
        "metadata": dict(settings.metadata),
        **({"retention": retention} if retention else {}),
    }


def _settings_from(fields: dict[str, object]) -> Settings:
    protections = []
    for item in _of(list, fields["protections"]):
        each = _of(dict, item)
        protections.append(
            Protection(
                _text(each, "pattern"),
                frozenset(_KINDS[kind] for kind in _texts(each, "blocked")),
                _users_from(each["exempt_users"]),
                frozenset(_texts(each, "exempt_roles")),
                _review_from(_of(dict, each["review"])) if "review" in each else None,
            )
        )
    hidden, is_read_only = tuple(_texts(fields, "hidden")), _of(bool, fields["is_read_only"])
    rules = Rules(tuple(protections), hidden, is_read_only)
    check_rules(rules)
    metadata = {name: _of(str, text) for name, text in _of(dict, fields["metadata"]).items()}
    retention = parse_retention(_text(fields, "retention") if "retention" in fields else "")
    return Settings(rules, check_metadata(metadata), retention=retention)


def _users_to(users: Sequence[ExemptUser]) -> list[dict[str, str]]:
    return [{"user_id": each.user_id, "user_uid": each.user_uid.hex()} for each in users]


def _users_from(value: object) -> tuple[ExemptUser, ...]:
    users = [_of(dict, each) for each in _of(list, value)]
    return tuple(
        ExemptUser(parse_user_id(_text(each, "user_id")), _hex(each, "user_uid")) for each in users
    )


def _review_to(rule: ReviewRule) -> dict[str, object]:
    return {
        "approval_count": rule.approval_count,
        "author_counts": rule.author_counts,
        "stale": rule.stale.value,
        "covers_destination": rule.covers_destination,
        "owners": [
            {"prefix": each.prefix, "users": _users_to(each.owners)} for each in rule.owners
        ],
    }


def _review_from(fields: dict[str, object]) -> ReviewRule:
    owners = [_of(dict, each) for each in _of(list, fields["owners"])]
    return ReviewRule(
        _number(fields, "approval_count"),
        _of(bool, fields["author_counts"]),
        StaleApprovals(_text(fields, "stale")),
        _of(bool, fields["covers_destination"]),
        tuple(OwnerRule(_text(each, "prefix"), _users_from(each["users"])) for each in owners),
    )


def _entry_to(line: ReflogLine) -> dict[str, object]:
    entry = line.entry
    return {
        "kind": "reflog",
        "branch_id": line.branch_id,
        "entry_id": entry.entry_id.hex(),
        "sequence": entry.sequence,
        "time_us": entry.time_us,
        "operation": entry.operation.value,
        "user_id": entry.user_id,
        "incarnation": entry.incarnation.hex(),
        "old_commit_id": entry.old_commit_id or "",
        "new_commit_id": entry.new_commit_id or "",
        "old_since_us": entry.old_since_us,
    }


def _entry_from(fields: dict[str, object]) -> ReflogLine:
    user, old, new = (_text(fields, name) for name in ("user_id", "old_commit_id", "new_commit_id"))
    entry = HeadChange(
        entry_id=_hex(fields, "entry_id"),
        sequence=_number(fields, "sequence"),
        time_us=_time(fields, "time_us"),
        # An operation that this version does not know is no reason to refuse a dump.
        operation=_OPERATIONS.get(_text(fields, "operation"), HeadOperation.OTHER),
        user_id=parse_user_id(user) if user else "",
        incarnation=_hex(fields, "incarnation"),
        old_commit_id=parse_commit_id(old) if old else None,
        new_commit_id=parse_commit_id(new) if new else None,
        old_since_us=_time(fields, "old_since_us"),
    )
    return ReflogLine(parse_branch_id(_text(fields, "branch_id")), entry)


def _of(kind: type[_T], value: object) -> _T:
    # In Python, True is an int; it would be a second spelling of 1.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{str(value)[:80]!r} is not of type {kind.__name__}")
    return value


def _text(fields: dict[str, object], name: str) -> str:
    return _of(str, fields[name])


def _texts(fields: dict[str, object], name: str) -> list[str]:
    return [_of(str, each) for each in _of(list, fields[name])]


def _number(fields: dict[str, object], name: str, most: int = _NUMBER_MAX) -> int:
    value = _of(int, fields[name])
    if not 0 <= value <= most:
        raise ValueError(f"{name} is {value}, not 0 to {most}")
    return value


def _time(fields: dict[str, object], name: str) -> int:
    return _number(fields, name, _TIME_US_MAX)


def _hex(fields: dict[str, object], name: str) -> bytes:
    value = bytes.fromhex(_text(fields, name))
    if not 0 < len(value) <= _ID_BYTES_MAX:
        raise ValueError(f"{name} has {len(value)} bytes, not 1 to {_ID_BYTES_MAX}")
    return value
