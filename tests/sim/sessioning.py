"""Session keys: their user, who issues, renews and ends them; an administrator, who takes rights away and gives them
back; and those who use the keys, with the right token or another one (docs/design/session-keys.md).

Each request goes through a gateway, which knows the caller, resolves the bucket by the binding of the key, and
authorises the request; then to graveler with the caller token, which asks auth itself. Some go to graveler at once,
with a caller token that the holder has got before. So each operation is one on the branch of the binding, and is judged
as such; I13 says whether it may be admitted at all.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import hmac
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

from tests.sim.auths import SECRET
from tests.sim.lost import LostError
from tests.sim.outcomes import refuse
from tests.sim.sessions import BOUND_SECONDS, Period, Right, SessionLife, Use
from tests.sim.viewing import VIEW
from tests.sim.workload import Client
from tests.support.check.history import Op
from tests.support.sim.clock import START_US

from tarn.client.auth import AuthClient, NewCredential
from tarn.core.access.policy import Binding, Role
from tarn.core.access.session_policy import permissions_for
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn_auth.authorizer import signing_key
from tarn_gateway.bucket_cache import Place
from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.operations.table import BY_NAME
from tarn_gateway.requests.address import Address
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.sigv4 import UNSIGNED_PAYLOAD
from tarn_proto.auth.v1 import session_key_service_pb2 as pb

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["SessionHolder", "check_sessions", "session_parties"]

T = TypeVar("T")

_ADMIN, _USER = "root", "ada"
_BRANCHES: Final = ("lake/side", "lake/main")
_CALL_SECONDS: Final = 3.0
_OVERRUN_SECONDS: Final = 5.0
_DURATIONS_S: Final = (1, 2, 2, 6)
_LIVES_MAX: Final = 3
_REGION: Final = "us-east-1"
_ACTS: Final = {"put": "PutObject", "get": "GetObject", "delete": "DeleteObject"}
_WRITES: Final = {"put", "delete"}
_STRANGER_RATE: Final = 0.2
_OLD_RATE: Final = 0.4
_PAST_GATEWAY_RATE: Final = 0.2
_DENIALS: Final = {Kind.UNAUTHENTICATED, Kind.DENIED}
_FAULTS: Final = {Kind.UNAVAILABLE, Kind.DEADLINE, Kind.UNKNOWN_OUTCOME, Kind.EXHAUSTED}


class _Party(Client):
    """A client of auth."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, [])
        self.choices = random.Random(f"sessions {world.plan.seed} {name}")
        self.auth: AuthClient = world.auth_client(random.Random(f"{name} {world.plan.seed}"))
        self.sessions = world.sessions
        self.token = ""

    @property
    def now(self) -> float:
        return self.transport.clock.monotonic()

    def asking(self) -> Call:
        """A call of this user."""
        return replace(self.transport.call(_CALL_SECONDS), caller_token=self.token)

    async def sure(
        self, work: Callable[[], Awaitable[T]], expected: Reason | None = None
    ) -> T | None:
        """Repeats a call until it is answered; returns None if the answer is the expected refusal."""
        while True:
            try:
                return await work()
            except TarnError as error:
                if error.reason is expected:
                    return None
                if error.kind not in _FAULTS:
                    self.world.problem(f"{self.name} got {error!r}")
                    return None
            await asyncio.sleep(0.05)

    async def log_in(self, key_id: str, secret: str, session_token: str = "") -> str:
        """Returns a caller token. Raises as `AuthClient.log_in`."""
        session = await self.auth.log_in(
            self.asking(),
            key_id,
            secret,
            now_us=self.transport.clock.now_us(),
            nonce=self.choices.randbytes(16),
            session_token=session_token,
        )
        return session.grant.caller_token


class SessionAdmin(_Party):
    """Takes the right to write away from the user, and gives it back."""

    async def set_up(self) -> NewCredential:
        """Creates the users; returns a key pair of the one whose session keys are played."""
        made = await self.auth.set_up(self.asking(), SECRET, _ADMIN)
        self.token = await self.log_in(made.credential.access_key_id, made.secret_access_key)
        await self.auth.create_user(self.asking(), _USER, [Role.DEVELOPER])
        return await self.auth.create_credential(self.asking(), user_id=_USER)

    async def run(self) -> None:
        """Changes rights until the faults end; then the user has them."""
        can_write = True
        while self.world.has_faults:
            await asyncio.sleep(self.choices.uniform(1.5, 4) * BOUND_SECONDS)
            can_write = not can_write
            await self._change(can_write=can_write)
        await self._change(can_write=True)

    async def _change(self, *, can_write: bool) -> None:
        roles = [Role.DEVELOPER] if can_write else [Role.ANALYST]

        async def attempt() -> None:
            right = Right(self.now, can_write=can_write)
            self.sessions.rights.append(right)
            await self.auth.update_user_roles(self.asking(), _USER, roles)
            right.end = self.now

        await self.sure(attempt)
        self.world.statistics["sessions: changes of rights"] += 1


class SessionOwner(_Party):
    """The user of the session keys: issues, renews and ends them; also by deleting the key pair that issued them."""

    def __init__(self, world: World, name: str, made: NewCredential) -> None:
        super().__init__(world, name)
        self._pair = made
        self._issuers: dict[str, tuple[str, list[SessionLife]]] = {}

    async def log_in_first(self) -> None:
        """Logs in, before faults begin, and issues a key."""
        self.token = await self.log_in(
            self._pair.credential.access_key_id, self._pair.secret_access_key
        )
        await self.issue()

    async def run(self) -> None:
        """Issues, renews and ends keys until the faults end."""
        acts = {self.issue: 4, self._renew: 3, self._end: 3, self._leave_issuer: 1}
        while self.world.has_faults:
            await asyncio.sleep(self.choices.expovariate(1 / (0.3 * BOUND_SECONDS)))
            (act,) = self.choices.choices([*acts], [*acts.values()])
            if self.world.has_faults:
                await act()

    def _living(self) -> list[SessionLife]:
        return [
            each for each in self.sessions.lives if not each.ends and each.lasts_at_most > self.now
        ]

    async def issue(self) -> None:
        """Issues a key, half of them by a key pair that is deleted later. If the answer is lost, nobody has the key."""
        if len(self._living()) >= _LIVES_MAX:
            return
        issuer, token = "", self.token
        if self.choices.random() < 0.5:
            issuer = await self._some_issuer()
            token = self._issuers[issuer][0] if issuer else token
        repository_id, _, ref = self.choices.choice(_BRANCHES).partition("/")
        binding = Binding(VIEW, repository_id, ref)
        is_read_only = self.choices.random() < 0.25
        request = pb.CreateSessionKeyRequest(
            duration_s=self.choices.choice(_DURATIONS_S),
            permissions=[
                pb.Permission(actions=each.actions, resources=each.resources)
                for each in permissions_for((), read_only=is_read_only)
            ],
            bindings=[pb.Binding(bucket_id=VIEW, repository_id=repository_id, ref=ref)],
        )
        try:
            made = await self.auth.create_session_key(
                replace(self.asking(), caller_token=token), request
            )
        except TarnError as error:
            if error.kind not in _FAULTS:
                self.world.problem(f"{self.name} got no session key: {error!r}")
            self.world.statistics["sessions: not issued"] += 1
            return
        until = _until(made.session_key)
        life = SessionLife(
            made.session_key.access_key_id,
            made.secret_access_key,
            made.session_token,
            binding,
            is_read_only,
            [(self.now, until)],
            until,
        )
        self.sessions.lives.append(life)
        if issuer:
            self._issuers[issuer][1].append(life)
        self.world.statistics["sessions: issued"] += 1

    async def _some_issuer(self) -> str:
        """Returns the id of a further key pair, a new one if there is none."""
        if not self._issuers:
            try:
                made = await self.auth.create_credential(self.asking())
                key_id = made.credential.access_key_id
                token = await self.log_in(key_id, made.secret_access_key)
            except TarnError:
                return ""
            self._issuers[key_id] = (token, [])
        return self.choices.choice([*self._issuers])

    async def _leave_issuer(self) -> None:
        """Deletes a further key pair, and thereby ends the session keys that it has issued."""
        if not self._issuers:
            return
        key_id = self.choices.choice([*self._issuers])
        _, lives = self._issuers.pop(key_id)
        period = Period(self.now)
        for life in lives:
            life.ends.append(period)
        await self.sure(
            lambda: self.auth.delete_credential(self.asking(), key_id), Reason.CREDENTIAL_NOT_FOUND
        )
        period.end = self.now
        self.world.statistics["sessions: issuers deleted"] += 1

    async def _renew(self) -> None:
        """Renews a key, sometimes one that is about to end. The outcome may stay unknown."""
        if not (living := self._living()):
            return
        life = self.choices.choice(living)
        if self.choices.random() < 0.3:
            await asyncio.sleep(max(0.0, life.lasts_at_most - self.now - 0.05))
        duration_s = self.choices.choice(_DURATIONS_S)
        before = life.lasts_at_most
        # If it is unknown whether it was made, it may be made as late as a handler may run.
        latest = self.now + _CALL_SECONDS + _OVERRUN_SECONDS + duration_s
        life.lasts_at_most = max(before, latest + self.sessions.skew_seconds)
        try:
            renewed = await self.auth.renew_session_key(
                self.asking(), life.access_key_id, duration_s=duration_s
            )
        except TarnError as error:
            if error.reason is Reason.CREDENTIAL_NOT_FOUND:
                life.lasts_at_most = before
                until = life.lasted(self.now)
                if not life.may_end(self.now) and until > self.now + self.sessions.skew_seconds:
                    self.world.problem(f"a session key that lasts until {until} was not renewed")
            elif error.kind not in _FAULTS:
                self.world.problem(f"{self.name} got {error!r}")
            return
        until = _until(renewed)
        life.lasts.append((self.now, until))
        life.lasts_at_most = max(before, until)
        self.world.statistics["sessions: renewed"] += 1

    async def _end(self) -> None:
        """Ends a key, by the right of its user or by its own. Repeats this until it is answered."""
        if living := self._living():
            await self.end(self.choices.choice(living))

    async def end(self, life: SessionLife) -> None:
        """Ends a key."""
        token = self.token
        if self.choices.random() < 0.3:
            try:
                token = await self.log_in(life.access_key_id, life.secret, life.token)
            except TarnError:
                token = self.token
        period = Period(self.now)
        life.ends.append(period)
        call = replace(self.asking(), caller_token=token)
        try:
            await self.auth.end_session_key(call, life.access_key_id)
        except TarnError:
            await self.sure(
                lambda: self.auth.end_session_key(self.asking(), life.access_key_id),
                Reason.CREDENTIAL_NOT_FOUND,
            )
        period.end = self.now
        self.world.statistics["sessions: ended"] += 1


class SessionHolder(_Party):
    """Works with session keys, through gateways and past them; and a stranger, who lacks the right token."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._tokens: dict[str, str] = {}
        self._place = Place("")

    def call(self) -> Call:
        """Returns a call of the present key."""
        return replace(super().call(), caller_token=self.token, bucket=self._place.version)

    def _finish_read(self, op: Op, error: TarnError, begun: float) -> None:
        if error.kind in _DENIALS:
            refuse(self.history, op, error)
        else:
            super()._finish_read(op, error, begun)

    async def run(self) -> None:
        """Performs all requests of this user."""
        plan = self.world.plan
        for _ in range(plan.operations):
            life = self._choose()
            token = self._strange(life) if self.choices.random() < _STRANGER_RATE else life.token
            await self.use(life, token, self.choices.choice([*_ACTS]))
            await asyncio.sleep(self.choices.expovariate(1 / plan.think_seconds))

    def _choose(self) -> SessionLife:
        """A key that lives, or else, and sometimes, one that was issued lately."""
        lives = self.sessions.lives[-2 * _LIVES_MAX :]
        living = [each for each in lives if not each.ends and each.lasts_at_most > self.now]
        return self.choices.choice(lives if self.choices.random() < _OLD_RATE else living or lives)

    def _strange(self, life: SessionLife) -> str:
        """The token of another key, a guessed one, or none."""
        others = [each.token for each in self.sessions.lives if each is not life]
        return self.choices.choice(["", "GUESSED", *others[-2:]])

    async def use(self, life: SessionLife, token: str, act: str) -> Use:
        """Makes one request with a key."""
        use = Use(life, self.now, is_stranger=token != life.token, is_write=act in _WRITES)
        self.sessions.uses.append(use)
        key = self.choices.choice(self.keys)
        known = self._tokens.get(life.access_key_id, "")
        self._place = Place(life.binding.repository, life.binding.ref)
        if use.is_stranger or not known or self.choices.random() >= _PAST_GATEWAY_RATE:
            known = await self._through_gateway(use, token, act, key)
        if known:
            self.token = known
            before = len(self.history.ops)
            await getattr(self, act)(f"{self._place.repository}/{self._place.ref}", key)
            for op in self.history.ops[before:]:
                if op.proc == self.name:
                    use.ops.append((op, self.now))
                    self._count(use, op.reason or op.outcome.name.lower())
        return use

    async def _through_gateway(self, use: Use, token: str, act: str, key: str) -> str:
        """Returns the caller token of a request that a gateway admits; empty for a refusal, or without an answer."""
        life = use.life
        address = Address(VIEW, key)
        gateway = self.world.some_gateway(self.choices)
        request = _signed(life, token, address, self.transport.clock.now_us())
        try:
            place, grant = await gateway.admit(
                request, BY_NAME[_ACTS[act]], address, seconds=self.patience_seconds
            )
        except LostError:
            return ""
        except (TarnError, S3Error) as told:
            # The gateway tells S3 clients some refusals of auth in S3's words.
            error = told.__cause__ if isinstance(told.__cause__, TarnError) else told
            if isinstance(error, TarnError) and error.kind in _DENIALS:
                use.answers.append((error.reason, self.now))
                self._count(use, error.reason)
            elif isinstance(error, S3Error) or error.kind not in _FAULTS:
                self.world.problem(f"{use.line()} got {error!r}")
            return ""
        use.answers.append((None, self.now))
        self._count(use, "admitted")
        if place != self._place:
            text = f"{use.line()} reaches {place}, but its binding is {life.binding}"
            self.sessions.problems.append(text)
        self._place = place
        self._tokens[life.access_key_id] = grant.caller_token
        return grant.caller_token

    def _count(self, use: Use, what: str) -> None:
        who = "a stranger" if use.is_stranger else "a holder"
        self.world.statistics[f"sessions: {who}: {what}"] += 1


def _until(key: pb.SessionKey) -> float:
    """The end of a session key, in seconds of the loop."""
    return (key.expire_time.ToMicroseconds() - START_US) / 1_000_000


def _signed(life: SessionLife, token: str, address: Address, now_us: int) -> Request:
    """Signs a request; the signer is written from AWS's documentation."""
    stamp = dt.datetime.fromtimestamp(now_us // 1_000_000, dt.UTC).strftime("%Y%m%dT%H%M%SZ")
    path = quote(f"/{address.bucket}/{address.key}", safe="/-._~")
    headers = {
        "host": "tarn",
        "x-amz-content-sha256": UNSIGNED_PAYLOAD,
        "x-amz-date": stamp,
        **({"x-amz-security-token": token} if token else {}),
    }
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    names = ";".join(headers)
    canonical = f"PUT\n{path}\n\n{lines}\n{names}\n{UNSIGNED_PAYLOAD}"
    scope = f"{stamp[:8]}/{_REGION}/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}".encode()
    signature = hmac.digest(signing_key(life.secret, stamp[:8], _REGION, "s3"), text, "sha256")
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={life.access_key_id}/{scope}, SignedHeaders={names}, "
        f"Signature={signature.hex()}"
    )
    pairs = Headers([*headers.items()])
    return Request("PUT", path.encode(), b"", pairs, BodyReader(0), request_id="0" * 20)


async def session_parties(world: World) -> list[Client]:
    """Sets auth up; returns the administrator and the user of session keys, none in a plan without."""
    if not world.plan.session_users:
        return []
    world.sessions.skew_seconds = world.plan.skew_seconds
    admin = SessionAdmin(world, "session-admin")
    owner = SessionOwner(world, "session-owner", await admin.set_up())
    await owner.log_in_first()
    return [admin, owner]


async def check_sessions(world: World, parties: Iterable[Client]) -> None:
    """Without faults, a new key works at once, and one that was ended does not after the bound."""
    for party in parties:
        if isinstance(party, SessionOwner):
            await _check(world, party)


async def _check(world: World, owner: SessionOwner) -> None:
    holder = SessionHolder(world, "last holder")
    known = len(world.sessions.lives)
    while len(world.sessions.lives) == known:
        await owner.issue()
        await asyncio.sleep(0.1)
    life = world.sessions.lives[-1]
    for _ in range(2):
        use = await holder.use(life, life.token, "get")
        is_admitted = [reason is None for reason, _ in use.answers] == [True]
        if is_admitted is bool(life.ends):
            world.problem(f"without faults, {use.line()}: {use.answers}")
        await owner.end(life)
        await asyncio.sleep(BOUND_SECONDS + 0.01)
