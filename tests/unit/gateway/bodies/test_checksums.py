from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.objects.checksums import Algorithm, new_digest
from tarn_gateway.bodies.checksums import (
    NO_CLAIMS,
    Claims,
    Promised,
    checksum_header,
    parse_algorithm,
)
from tarn_gateway.s3error import S3Error


def test_names() -> None:
    assert checksum_header("CRC64NVME") == "x-amz-checksum-crc64nvme"
    assert parse_algorithm("crc32c") is Algorithm.CRC32C
    with pytest.raises(S3Error, match="InvalidRequest"):
        parse_algorithm("MD5")


def said_of(body: bytes) -> st.SearchStrategy[Promised]:
    """Returns what requests say about a body, some of them of another one."""
    md5s = st.sampled_from([None, hashlib.md5(body).digest(), bytes(16)])
    sha256s = st.sampled_from([None, hashlib.sha256(body).digest(), bytes(32)])
    wanted = st.frozensets(st.sampled_from(Algorithm), max_size=2)

    def claim(algorithm: Algorithm) -> st.SearchStrategy[tuple[Algorithm, bytes]]:
        digest = new_digest(algorithm)
        digest.update(body)
        right = digest.digest()
        return st.sampled_from([(algorithm, right), (algorithm, bytes(len(right)))])

    nothing = st.just((None, None))
    claimed = st.one_of(nothing, st.sampled_from(Algorithm).flatmap(claim))

    def promised(
        md5: bytes | None,
        claimed: tuple[Algorithm | None, bytes | None],
        sha256: bytes | None,
        wanted: frozenset[Algorithm],
    ) -> Promised:
        has_claims = md5 is not None or claimed[0] is not None
        return Promised(Claims(md5, *claimed) if has_claims else NO_CLAIMS, sha256, wanted)

    return st.builds(promised, md5s, claimed, sha256s, st.one_of(st.just(frozenset()), wanted))


@given(st.data(), st.binary(max_size=300), st.integers(0, 300))
def test_a_whole_body_is_verified_as_one_in_pieces(
    data: st.DataObject, body: bytes, cut: int
) -> None:
    promised = data.draw(said_of(body))

    def whole() -> object:
        return promised.sums_of(memoryview(body))

    def in_pieces() -> object:
        digests = promised.digests()
        digests.update(body[:cut])
        digests.update(memoryview(body)[cut:])
        return digests.finish()

    answers: list[object] = []
    for verify in (whole, in_pieces):
        try:
            answers.append(verify())
        except S3Error as error:
            answers.append((error.code, str(error), error.extra))
    assert answers[0] == answers[1]
