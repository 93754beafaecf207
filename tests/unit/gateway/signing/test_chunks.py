"""AWS's published example of a chunked upload (S3 API reference, "Signature calculations for the
Authorization header: transferring payload in multiple chunks")."""

from __future__ import annotations

import pytest

from tarn_auth.authorizer import signing_key
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.chunks import ChunkSignatures

KEY = signing_key("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "20130524", "us-east-1", "s3")
SEED = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
CHUNKS = [
    (65536, b"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
    (1024, b"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
    (0, b"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
]


def chain() -> ChunkSignatures:
    return ChunkSignatures(SEED, "20130524T000000Z", "20130524/us-east-1/s3/aws4_request", KEY)


def test_awss_example_verifies() -> None:
    signatures = chain()
    for size, signature in CHUNKS:
        signatures.begin(b"chunk-signature=" + signature)
        signatures.update(memoryview(b"a" * size))
    signatures.finish()


def test_a_changed_chunk_is_noticed_when_the_next_one_begins() -> None:
    signatures = chain()
    signatures.begin(b"chunk-signature=" + CHUNKS[0][1])
    signatures.update(memoryview(b"b" * 65536))
    with pytest.raises(S3Error, match="SignatureDoesNotMatch"):
        signatures.begin(b"chunk-signature=" + CHUNKS[1][1])
