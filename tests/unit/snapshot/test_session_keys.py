"""Backups leave session keys and sessions of browsers out: one that was ended must not come back by a restore."""

from __future__ import annotations

import hashlib
import random

from backup_lab import BackupLab
from tests.support.clock import SeededIds

from tarn.core.access.policy import Role
from tarn.core.ids import UserId
from tarn.core.levels import ALL_FEATURES
from tarn.kv.auth_records import decode_session_key
from tarn.kv.keys import AuthKeys
from tarn_auth.authorizer import Authorizer, Holder
from tarn_auth.credentials import Credentials
from tarn_auth.key_uses import KeyUses
from tarn_auth.keyring import Keyring
from tarn_auth.registers import Registers
from tarn_auth.session_keys import SessionKeys
from tarn_auth.users import Users
from tarn_auth.web_sessions import WebSessions

PARTITION = AuthKeys("test").partition


async def test_sessions_of_either_kind_are_no_part_of_a_backup(lab: BackupLab) -> None:
    kv, clock = lab.kv, lab.lake.clock
    registers, random_bytes = Registers(kv, PARTITION), random.Random(1).randbytes
    keyring = Keyring((bytes(32),), random_bytes)
    box = keyring.box
    credentials = Credentials(registers, box, clock, random_bytes)
    session_keys = SessionKeys(registers, box, clock, random_bytes, ALL_FEATURES)
    users = Users(registers, credentials, session_keys, clock, SeededIds(clock), ALL_FEATURES)
    user = await users.create(UserId("ada"), [Role.DEVELOPER])
    pair = await credentials.create(user, "", *credentials.make_pair())
    made = await session_keys.create(user, pair, "", 3600, [], [])
    stored = (await kv.get_many(PARTITION, [AuthKeys.session(made.key.access_key_id)]))[0]
    assert stored is not None
    assert decode_session_key(stored.value) == made.key
    uses = KeyUses(registers, clock, ALL_FEATURES)
    authorizer = Authorizer(users, credentials, session_keys, keyring, clock, uses)
    web_sessions = WebSessions(registers, authorizer, clock, random_bytes, ALL_FEATURES, uses)
    token = authorizer.grant(Holder(user, pair)).caller_token
    digest = hashlib.sha256((await web_sessions.begin(token)).encode()).digest()
    assert (await kv.get_many(PARTITION, [AuthKeys.web_session(digest)]))[0] is not None
    await lab.back_up()
    restored = await lab.restored()
    rows = [key for key, _ in await restored.scan(PARTITION, b"", None, 100)]
    assert AuthKeys.user("ada") in rows
    assert AuthKeys.credential(pair.access_key_id) in rows
    assert [key for key in rows if b"session" in key] == []
    assert await lab.fsck(kv) == []
    assert await lab.fsck(restored) == []
