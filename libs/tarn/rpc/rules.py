"""The rule of each rpc, read from the options in its proto: required action, resource, and effect.

The protos are the only table (`tarn_proto/common/v1/rule.proto` explains the option). A service whose rpc lacks a
rule, or has an inconsistent rule, can neither be called nor served: `rules_of` rejects it. For a coalesced
stream, each of its operations has a rule.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from google.protobuf.descriptor import (
    Descriptor,
    FieldDescriptor,
    MethodDescriptor,
    ServiceDescriptor,
)
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import Message

from tarn.core.access.actions import Action
from tarn.core.access.service import Service
from tarn.core.change_kind import PROTECTABLE, ChangeKind
from tarn.core.errors import Kind, Reason, TarnError
from tarn_proto.common.v1 import rule_pb2

if TYPE_CHECKING:
    from google.protobuf.internal.extension_dict import _ExtensionFieldDescriptor

__all__ = [
    "OPERATE",
    "OPERATION",
    "Resource",
    "Rule",
    "Scope",
    "operations_of",
    "rule_in",
    "rules_of",
    "scope_of",
]

OPERATE: Final = "Operate"
"""Name of the one streaming rpc: a coalesced stream of operations (docs/design/hot-path.md)."""

OPERATION: Final = "operation"
"""Name of the oneof that holds a stream's operations."""

_ASKED: Final = "asked"
_SHOWN_CHARS: Final = 80
_REPOSITORY: Final = "repository_id"
_BRANCH: Final = "branch_id"


class Scope(enum.Enum):
    """What is known about a call before its handler runs; `tarn.gate.permits` and `tarn_auth.gate` have the classes."""

    OPEN = enum.auto()
    """Nothing: the rpc is public."""
    SERVICES = enum.auto()
    """The caller is a service that may ask."""
    HANDLER = enum.auto()
    """The caller; the handler decides."""
    RESOURCE = enum.auto()
    """The caller may do the action."""
    REPOSITORY = enum.auto()
    """Likewise, the repository exists, and its rules allow the change."""


class Resource:
    """The template of a resource, such as `repository/{repository_id}/ref/{ref}/object/{path}`.

    Attributes:
        template: as written in the proto.
        names: the names in braces, in order; with dots for fields of messages in the request.
        of: returns the resource of a request (of an rpc, or an operation of a stream). Raises `TarnError`
            INVALID if a name is empty or contains a slash.
        is_object: whether it is a path of a branch or ref, which ends the resource.
    """

    __slots__ = ("_texts", "_values_of", "is_object", "names", "of", "template")

    def __init__(self, template: str) -> None:
        first, *rest = template.split("{")
        pieces = [piece.partition("}") for piece in rest]
        self.template = template
        self.names = tuple(name for name, _, _ in pieces)
        self._texts = (first, *(text for _, _, text in pieces))
        self._values_of = [attrgetter(name) for name in self.names]
        self.of: Callable[[object], str] = self._of
        self.is_object = len(self.names) == 3 and self._texts[2:] == ("/object/", "")
        if self.is_object:
            self.of = _object_of(self.names, self._texts)

    def of_found(self, request: object, **found: object) -> str:
        """Returns the resource of a request, with values that the handler found.

        Args:
            request: as for `of`.
            found: strings that replace a field (`source_ref`, which a request may leave to a default), and
                records (`upload` for `{upload.path}`).

        Raises:
            TarnError: as `of`.
        """

        def value(name: str) -> object:
            owner, _, field = name.rpartition(".")
            if owner in found:
                return getattr(found[owner], field)
            return found[name] if name in found else attrgetter(name)(request)

        return self._fill([str(value(name)) for name in self.names])

    def _of(self, request: object) -> str:
        return self._fill([value_of(request) for value_of in self._values_of])

    def _fill(self, values: list[str]) -> str:
        parts = [self._texts[0]]
        texts = zip(self.names, values, self._texts, self._texts[1:], strict=False)
        for name, value, before, after in texts:
            # The path of an object may contain any character.
            if not before.endswith("/object/"):
                _check_name(name, value)
            parts += (value, after)
        return "".join(parts)


def _object_of(names: tuple[str, ...], texts: tuple[str, ...]) -> Callable[[object], str]:
    """Like `Resource.of`, for an object of a branch or ref, as in every hot operation: twice as fast."""
    values_of = attrgetter(*names)
    before, between, last, _ = texts

    def of(request: object) -> str:
        repository, ref, path = values_of(request)
        if not repository or not ref or "/" in repository or "/" in ref:
            _check_name(names[0], repository)
            _check_name(names[1], ref)
        return f"{before}{repository}{between}{ref}{last}{path}"

    return of


def _check_name(field: str, value: str) -> None:
    """Rejects a name with a slash, which would address a different resource, below the intended one."""
    if "/" in value or not value:
        field, shown = field.rpartition(".")[2], value[:_SHOWN_CHARS]
        text = f"{field} is {shown!r}: names are not empty and contain no slash"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field=field, value=shown)


@dataclass(frozen=True, eq=False)
class Rule:
    """The action that an rpc requires, on which resource, and whether the rpc changes anything.

    Attributes:
        name: service and rpc, such as `BranchService.CreateBranch`; followed by the operation for one
            of a stream (`EntryService.Operate.lookup`), and by the name of a further access
            (`BranchService.CreateBranch.source`).
        full_name: `name` with the package before it.
        action: the required action; None if the rpc is public or for services only.
        resource: the resource of the action.
        read_only: the rpc changes nothing, so it may be repeated, and its caller may leave at any time.
        also: further accesses by their names.
        public_because: why all callers are allowed; empty if the rpc is not public.
        change: the kind of change that the rules of a repository can block; None if the rpc changes no
            repository.
        services: the services that may make the call; empty for an rpc that is not for services only.
        through: services one of which must have made the call for its user; empty if users may make it themselves.
        issues_credential: the answer holds a credential.
        public_read: a gateway may make the call without a user, through a bucket view that is marked public-read.
        scope: what is known before the handler runs.
        is_wanted: of a further access: whether a request needs it before the handler runs.
    """

    full_name: str
    action: Action | None
    resource: Resource
    read_only: bool
    also: Mapping[str, Rule]
    public_because: str = ""
    change: ChangeKind | None = None
    services: frozenset[Service] = frozenset()
    through: frozenset[Service] = frozenset()
    issues_credential: bool = False
    public_read: bool = False
    scope: Scope = Scope.OPEN
    is_wanted: Callable[[object], object] = bool

    @cached_property
    def before(self) -> tuple[Rule, ...]:
        """The further accesses that may have to be checked before the handler runs."""
        return tuple(each for each in self.also.values() if each.is_wanted is not _never)

    @cached_property
    def place_of(self) -> Callable[[object], tuple[str, str]] | None:
        """Returns repository and branch, or ref, of a request about an object for which nothing else than its path
        makes a difference to what is checked first; None for rules of other kinds.

        Only writes, and what changes nothing, are judged by rules of a repository that may be seconds old.
        """
        is_plain = self.scope is Scope.REPOSITORY and self.resource.is_object and not self.through
        if not is_plain or self.kind not in (None, ChangeKind.WRITE):
            return None
        return attrgetter(*self.resource.names[:2])

    @cached_property
    def path_of(self) -> Callable[[object], str]:
        """Returns the path in a request about an object (`Resource.is_object`)."""
        return attrgetter(self.resource.names[2])

    @cached_property
    def repository_of(self) -> Callable[[object], str]:
        """Returns the name of the repository in a request, for the scope REPOSITORY."""
        return attrgetter(self.resource.names[0])

    @cached_property
    def is_through_views(self) -> bool:
        """Whether the rpc may be called through a bucket view: its request names the repository itself."""
        return self.resource.names[:1] == (_REPOSITORY,)

    @cached_property
    def branch_of(self) -> Callable[[object], str]:
        """Returns the name of the branch that a request changes; an empty name if the resource names none."""
        name = _branch_in(self.resource)
        return attrgetter(name) if name else _nothing

    @cached_property
    def kind(self) -> ChangeKind | None:
        """The kind of change that the rules of a repository decide about; None if it changes nothing."""
        if self.read_only:
            return None
        # An rpc that changes something and states no kind of change: a read-only repository blocks it.
        return self.change or ChangeKind.OTHER

    @property
    def name(self) -> str:
        """See the class."""
        return ".".join(self.full_name.split(".")[3:])

    @property
    def is_public(self) -> bool:
        """Whether all callers are allowed, also those without a token."""
        return bool(self.public_because)

    def require_action(self) -> Action:
        """Returns the action.

        Raises:
            TarnError: DENIED if the rpc has no action: calling this is a mistake.
        """
        if self.action is None:
            text = f"{self.full_name} requires no action"
            raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, text)
        return self.action


@cache
def rules_of(service: ServiceDescriptor) -> Mapping[str, Rule]:
    """Returns the rules of a service, by the names of its unary rpcs and of its stream's operations.

    Raises:
        TypeError: rpcs without a rule or with an inconsistent rule; the message names all of them.
    """
    rules: dict[str, Rule] = {}
    wrong: list[str] = []

    def add(
        name: str, full_name: str, rule: rule_pb2.Rule, read_only: bool, of: Descriptor
    ) -> None:
        wrong.extend(f"{full_name}: {text}" for text in _problems(rule, of))
        if rule.public_read and not (read_only and _reads_only(rule)):
            wrong.append(f"{full_name}: anonymous requests only read, and have no further accesses")
        if not wrong:
            rules[name] = _rule(full_name, rule, read_only=read_only)

    for method in service.methods:
        options = method.GetOptions()
        if method.name != OPERATE:
            read_only = options.idempotency_level == MethodOptions.NO_SIDE_EFFECTS
            rule = rule_in(options, rule_pb2.rule)
            add(method.name, method.full_name, rule, read_only, method.input_type)
            continue
        if rule_in(options, rule_pb2.rule).ByteSize():
            wrong.append(f"{method.full_name}: its operations have rules, not the stream")
        for field in operations_of(method).oneofs_by_name[OPERATION].fields:
            rule = rule_in(field.GetOptions(), rule_pb2.operation_rule)
            assert field.message_type is not None, "an operation is a message"
            full_name = f"{method.full_name}.{field.name}"
            add(field.name, full_name, rule, rule.no_side_effects, field.message_type)
    if wrong:
        raise TypeError("; ".join(wrong))
    return MappingProxyType(rules)


def operations_of(stream: MethodDescriptor) -> Descriptor:
    """Returns the message of one operation of a coalesced stream."""
    message = stream.input_type.fields_by_name["operations"].message_type
    assert message is not None, f"{stream.full_name} carries operations"
    return message


def rule_in(options: Message, extension: FieldDescriptor) -> rule_pb2.Rule:
    """Returns the rule in a descriptor's options; an empty rule if there is none."""
    # The stubs of generated code do not state which message an extension extends.
    found: object = options.Extensions[
        cast("_ExtensionFieldDescriptor[Message, Message]", extension)
    ]
    assert isinstance(found, rule_pb2.Rule), "the option is a rule"
    return found


def _rule(full_name: str, rule: rule_pb2.Rule, *, read_only: bool) -> Rule:
    also = {
        access.name: Rule(
            f"{full_name}.{access.name}",
            Action(access.action),
            Resource(access.resource),
            read_only,
            MappingProxyType({}),
            is_wanted=_wanted(access),
        )
        for access in rule.also
    }
    action = Action(rule.action) if rule.action else None
    resource = Resource(rule.resource)
    change = ChangeKind(rule.change) if rule.change else None
    return Rule(
        full_name,
        action,
        resource,
        read_only,
        MappingProxyType(also),
        rule.public_because,
        change,
        frozenset(Service(name) for name in rule.services),
        frozenset(Service(name) for name in rule.through),
        rule.issues_credential,
        rule.public_read,
        scope_of(rule),
    )


def _reads_only(rule: rule_pb2.Rule) -> bool:
    is_plain = not rule.also and not rule.through
    return is_plain and rule.action == Action.READ_REPO and scope_of(rule) is Scope.REPOSITORY


def scope_of(rule: rule_pb2.Rule) -> Scope:
    """Returns what is known before the handler of an rpc with this rule runs."""
    if rule.services:
        return Scope.SERVICES
    if not rule.action:
        return Scope.OPEN
    if rule.decided_by_handler:
        return Scope.HANDLER
    names = Resource(rule.resource).names
    is_of_repository = bool(names) and names[0].rpartition(".")[2] == _REPOSITORY
    if is_of_repository and not rule.repository_may_be_missing:
        return Scope.REPOSITORY
    return Scope.RESOURCE


def _branch_in(resource: Resource) -> str:
    """Returns the field of the request that names the branch of a resource; empty if there is none."""
    return next((name for name in resource.names if name.rpartition(".")[2] == _BRANCH), "")


def _wanted(access: rule_pb2.Access) -> Callable[[object], object]:
    if access.when == _ASKED:
        return _never
    return attrgetter(access.when) if access.when else _always


def _always(_request: object) -> bool:
    return True


def _never(_request: object) -> bool:
    return False


def _nothing(_request: object) -> str:
    return ""


def _problems(rule: rule_pb2.Rule, request: Descriptor) -> list[str]:
    """Returns the defects of a rule."""
    told = bool(rule.action or rule.resource or rule.also or rule.change)
    if rule.public_because:
        told = told or bool(rule.services or rule.through)
        return ["a public rpc has no action, resource, further access or service"] if told else []
    if rule.services:
        problems = [
            f"{name!r} is not a service" for name in rule.services if name not in set(Service)
        ]
        told = told or bool(rule.through)
        return [*problems, "an rpc for services has no action or resource"] if told else problems
    if not rule.action:
        return ["it has no rule: set the option (tarn.common.v1.rule)"]
    problems = [f"{name!r} is not a service" for name in rule.through if name not in set(Service)]
    if rule.change and rule.change not in set(ChangeKind):
        problems.append(f"{rule.change!r} is not a kind of tarn.core.change_kind")
    if rule.change in set(PROTECTABLE) and not _branch_in(Resource(rule.resource)):
        problems.append(f"{rule.change!r} is about a branch, and the resource names none")
    accesses: list[rule_pb2.Rule | rule_pb2.Access] = [rule, *rule.also]
    for access in accesses:
        if access.action not in set(Action):
            problems.append(f"{access.action!r} is not an action of tarn.core.access.actions")
        if not access.resource:
            problems.append("no resource")
        is_asked = rule.decided_by_handler or getattr(access, "when", "") == _ASKED
        problems += [
            f"{{{name}}} is not a field of {request.name}"
            for name in Resource(access.resource).names
            if not ("." in name and is_asked) and not _is_field(request, name)
        ]
    problems += [
        f"{access.when!r} is not a field of {request.name}"
        for access in rule.also
        if access.when not in ("", _ASKED) and not _is_field(request, access.when)
    ]
    if rule.decided_by_handler and any(access.when != _ASKED for access in rule.also):
        problems.append(f"the handler decides, so further accesses have when: {_ASKED!r}")
    if len({access.name for access in rule.also}) < len(rule.also):
        problems.append("two further accesses have the same name")
    return problems


def _is_field(message: Descriptor, path: str) -> bool:
    """Whether a path such as `merge.branch_id` leads to a field of a message or of the messages in it."""
    name, _, rest = path.partition(".")
    if (field := message.fields_by_name.get(name)) is None:
        return False
    return not rest or (field.message_type is not None and _is_field(field.message_type, rest))
