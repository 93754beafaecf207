"""The scripts that make Secrets, with a kubectl that keeps them in files: `deploy/k8s/secrets` and `jobs-user`."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from manifests import JOBS, JOBS_NAMESPACE, K8S, NAMESPACE, installed, secrets_used

KUBECTL = r"""#!/bin/bash
set -eu
here=$(dirname "$0")
namespace=default
if [ "$1" = -n ]; then namespace=$2; shift 2; fi
case "$1 $2" in
"get namespace") [ -d "$here/objects/$3" ] ;;
"create namespace") mkdir -p "$here/objects/$3" ;;
"get secret")
    [ -d "$here/objects/$namespace/secret/$3" ] || exit 1
    key=${5:-}
    key=${key#*.data.}
    key=${key%\}}
    if [ "${4:-}" = -o ]; then base64 "$here/objects/$namespace/secret/$3/${key//\\/}" 2>/dev/null || true; fi ;;
"patch secret")
    [ "$4 $5 $6" = "--type merge -p" ]
    sed 's/^{"data":{"ca.crt":"\([^"]*\)"}}$/\1/' <<<"$7" | base64 -d >"$here/objects/$namespace/secret/$3/ca.crt" ;;
"get "*) [ -d "$here/objects/$namespace/$2/$3" ] ;;
"create secret" | "create configmap")
    kind=$2
    [ "$kind" = configmap ] || { [ "$3" = generic ]; shift; }
    made=$here/objects/$namespace/$kind/$3
    mkdir -p "$here/objects/$namespace/$kind"
    mkdir "$made"
    for each in "${@:4}"; do
        each=${each#--from-file=}
        key=${each%%=*}
        cp "${each#*=}" "$made/${key##*/}"
    done ;;
"exec job/shell") [ "$namespace" = tarn ]; shift 4; exec "$here/tarn" "$@" ;;
*) echo "not understood: $*" >&2; exit 1 ;;
esac
"""
TARN = """#!/bin/bash
here=$(dirname "$0")
echo "$*" >>"$here/calls"
case "$*" in
"auth user show "*) [ -e "$here/$4" ] ;;
"auth user create "*) touch "$here/$4" ;;
"--json auth credential create "*) cat "$here/answer" ;;
esac
"""
SERVICES = ("auth", "graveler", "gateway", "api", "compactor")
PAIR = {"access_key_id": "TARNABC", "user": "jobs", "secret_access_key": "s/e+cret="}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Secrets as folders of files, below their namespaces."""

    folder: Path

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(K8S / script), *arguments],
            env={**os.environ, "KUBECTL": str(self.folder / "kubectl")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def secrets(self) -> set[tuple[str, str]]:
        """Namespace and name of all Secrets."""
        found = (self.folder / "objects").glob("*/secret/*")
        return {(each.parts[-3], each.name) for each in found}

    def config(self, name: str, key: str, namespace: str) -> bytes:
        return (self.folder / "objects" / namespace / "configmap" / name / key).read_bytes()

    def read(self, name: str, key: str, namespace: str = NAMESPACE) -> bytes:
        return (self.folder / "objects" / namespace / "secret" / name / key).read_bytes()

    def remove(self, name: str, namespace: str = NAMESPACE) -> None:
        folder = self.folder / "objects" / namespace / "secret" / name
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    for name, text in (("kubectl", KUBECTL), ("tarn", TARN)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return Cluster(tmp_path)


def certificate(cluster: Cluster, name: str, namespace: str = NAMESPACE) -> x509.Certificate:
    """Returns the certificate of a Secret; it must be signed by the authority beside it."""
    made = x509.load_pem_x509_certificate(cluster.read(name, "tls.crt", namespace))
    made.verify_directly_issued_by(
        x509.load_pem_x509_certificate(cluster.read(name, "ca.crt", namespace))
    )
    return made


def dns_names(made: x509.Certificate) -> set[str]:
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {type(each) for each in names} == {x509.DNSName}
    return set(names.get_values_for_type(x509.DNSName))


def uses(made: x509.Certificate) -> set[x509.ObjectIdentifier]:
    return set(made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_all_secrets_that_the_evaluation_mounts_are_made_once(cluster: Cluster) -> None:
    done = cluster.run("secrets")
    assert done.returncode == 0, done.stderr
    made = cluster.secrets()
    mounted = secrets_used(installed("dev", *JOBS))
    # An evaluation has no login of Cassandra; `jobs-user` makes the key pair of jobs.
    assert mounted - made == {(NAMESPACE, "tarn-cassandra"), (JOBS_NAMESPACE, "tarn-jobs")}
    # Only components/ingress uses the authority as a Secret.
    assert made - mounted == {(NAMESPACE, "tarn-s3-ca")}
    before = {each: cluster.read("tarn-tls-auth", each) for each in ("ca.crt", "tls.crt")}
    again = cluster.run("secrets")
    assert again.returncode == 0, again.stderr
    assert cluster.secrets() == made
    assert {each: cluster.read("tarn-tls-auth", each) for each in before} == before


def test_certificates_have_the_names_by_which_services_are_called(cluster: Cluster) -> None:
    assert cluster.run("secrets").returncode == 0
    for service in SERVICES:
        made = certificate(cluster, f"tarn-tls-{service}")
        suffixes = ("", ".tarn", ".tarn.svc", ".tarn.svc.cluster.local")
        assert dns_names(made) == {f"{service}{each}" for each in suffixes}
        assert uses(made) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}


def test_the_endpoints_have_certificates_of_authorities_of_their_own(cluster: Cluster) -> None:
    """The names of services in a certificate of the endpoints are no proof for auth, which trusts another authority."""
    assert cluster.run("secrets").returncode == 0
    endpoint, bucket = (certificate(cluster, f"tarn-tls-{each}") for each in ("endpoint", "bucket"))
    suffixes = ("", ".tarn", ".tarn.svc", ".tarn.svc.cluster.local")
    for services, made, extra in (
        (("gateway", "api"), endpoint, {"localhost"}),
        (("bucket",), bucket, set()),
    ):
        assert (
            dns_names(made) == {f"{name}{each}" for name in services for each in suffixes} | extra
        )
        assert uses(made) == {ExtendedKeyUsageOID.SERVER_AUTH}
    authorities = [
        cluster.read(f"tarn-tls-{each}", "ca.crt") for each in ("auth", "endpoint", "bucket")
    ]
    assert len(set(authorities)) == 3
    assert cluster.read("tarn-bucket-ca", "ca.crt") == authorities[2]
    assert cluster.read("tarn-s3-ca", "ca.crt") == authorities[1]
    for place in (NAMESPACE, JOBS_NAMESPACE):
        assert cluster.config("tarn-s3-ca", "ca.crt", place) == authorities[1]


def test_clients_trust_the_authority_of_an_endpoint_that_exists(cluster: Cluster) -> None:
    """As cert-manager makes it. A bucket with an authority of its own gets no certificate."""
    secrets = cluster.folder / "objects" / NAMESPACE / "secret"
    for name, content in (("tarn-tls-endpoint", b"theirs"), ("tarn-bucket-ca", b"of the bucket")):
        (secrets / name).mkdir(parents=True)
        (secrets / name / "ca.crt").write_bytes(content)
    done = cluster.run("secrets")
    assert done.returncode == 0, done.stderr
    assert cluster.config("tarn-s3-ca", "ca.crt", JOBS_NAMESPACE) == b"theirs"
    assert cluster.read("tarn-s3-ca", "ca.crt") == b"theirs"
    assert (NAMESPACE, "tarn-tls-bucket") not in cluster.secrets()
    assert cluster.read("tarn-bucket-ca", "ca.crt") == b"of the bucket"


def test_clients_have_certificates_of_their_own_that_name_no_service(cluster: Cluster) -> None:
    """Auth knows services by these names, so whoever holds one gets signing keys."""
    assert cluster.run("secrets").returncode == 0
    found = [certificate(cluster, "tarn-tls-client", each) for each in (NAMESPACE, JOBS_NAMESPACE)]
    assert found[0].public_key() != found[1].public_key()
    assert found[0].issuer == found[1].issuer == certificate(cluster, "tarn-tls-auth").issuer
    for made in found:
        assert uses(made) == {ExtendedKeyUsageOID.CLIENT_AUTH}
        assert not {each.partition(".")[0] for each in dns_names(made)} & set(SERVICES)


def test_certificates_of_another_authority_are_never_mixed_in(cluster: Cluster) -> None:
    """The key of the authority is not kept: what is missing cannot be made, and what exists is not replaced."""
    assert cluster.run("secrets").returncode == 0
    before = cluster.read("tarn-tls-auth", "tls.crt")
    cluster.remove("tarn-tls-compactor")
    done = cluster.run("secrets")
    assert done.returncode == 1
    assert "tarn/tarn-tls-compactor" in done.stderr
    assert "delete" in done.stderr
    assert cluster.read("tarn-tls-auth", "tls.crt") == before
    assert (NAMESPACE, "tarn-tls-compactor") not in cluster.secrets()


OPTIONAL = (("tarn-tls-api", NAMESPACE), ("tarn-tls-client", JOBS_NAMESPACE))
"""What an installation may lack: one without jobs, and one from before the REST endpoint."""


@pytest.mark.parametrize("missing", [OPTIONAL[:1], OPTIONAL[1:], OPTIONAL])
def test_an_installation_without_a_part_is_left_as_it_is(
    cluster: Cluster, missing: Sequence[tuple[str, str]]
) -> None:
    """What is missing is named, with a command that makes it."""
    assert cluster.run("secrets").returncode == 0
    for each in missing:
        cluster.remove(*each)
    before = contents(cluster)
    done = cluster.run("secrets")
    assert done.returncode == 0, done.stderr
    for name, namespace in OPTIONAL:
        said = f"{namespace}/{name} is missing" in done.stderr
        assert said is ((name, namespace) in missing), done.stderr
    assert "deploy/k8s/secrets --extend tarn tarn-jobs" in done.stderr
    assert contents(cluster) == before


def contents(cluster: Cluster) -> dict[Path, bytes]:
    return {
        file: file.read_bytes()
        for file in (cluster.folder / "objects").rglob("*")
        if file.is_file()
    }


def authorities(cluster: Cluster, name: str, namespace: str) -> list[x509.Certificate]:
    """Returns the authorities in a Secret, as OpenSSL reads them, too."""
    text = cluster.read(name, "ca.crt", namespace)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=text.decode())
    found = x509.load_pem_x509_certificates(text)
    assert len(context.get_ca_certs()) == len(found)
    return found


@pytest.mark.parametrize("missing", [OPTIONAL[0], OPTIONAL[1], ("tarn-tls-compactor", NAMESPACE)])
def test_a_missing_certificate_is_added_by_an_authority_that_all_trust(
    cluster: Cluster, missing: tuple[str, str]
) -> None:
    """The certificates that exist stay, and are trusted as before."""
    assert cluster.run("secrets").returncode == 0
    everywhere = [*((f"tarn-tls-{each}", NAMESPACE) for each in (*SERVICES, "client")), OPTIONAL[1]]
    (old,) = authorities(cluster, "tarn-tls-auth", NAMESPACE)
    # As someone may have pasted it.
    pasted = cluster.folder / "objects" / NAMESPACE / "secret" / "tarn-tls-auth" / "ca.crt"
    pasted.write_bytes(pasted.read_bytes().rstrip())
    cluster.remove(*missing)
    before = contents(cluster)
    done = cluster.run("secrets", "--extend")
    assert done.returncode == 0, done.stderr
    _, new = authorities(cluster, "tarn-tls-auth", NAMESPACE)
    assert new != old
    for each in everywhere:
        assert authorities(cluster, *each) == [old, new]
        made = x509.load_pem_x509_certificate(cluster.read(each[0], "tls.crt", each[1]))
        made.verify_directly_issued_by(new if each == missing else old)
        names = {name.partition(".")[0] for name in dns_names(made)}
        assert names == {each[0].removeprefix("tarn-tls-")}
    after = contents(cluster)
    changed = {file for file, content in before.items() if after[file] != content}
    assert {file.name for file in changed} == {"ca.crt"}
    assert len(changed) == len(everywhere) - 1
    again = cluster.run("secrets", "--extend")
    assert again.returncode == 0, again.stderr
    assert contents(cluster) == after


def test_extending_nothing_makes_all_by_one_authority(cluster: Cluster) -> None:
    done = cluster.run("secrets", "--extend")
    assert done.returncode == 0, done.stderr
    assert len(authorities(cluster, "tarn-tls-auth", NAMESPACE)) == 1
    for service in SERVICES:
        certificate(cluster, f"tarn-tls-{service}")


def test_a_certificate_of_the_endpoint_without_the_name_of_rest_is_named(cluster: Cluster) -> None:
    """One from before the REST endpoint serves S3 as before, and is not replaced."""
    assert cluster.run("secrets").returncode == 0
    made = cluster.folder / "objects" / NAMESPACE / "secret" / "tarn-tls-endpoint" / "tls.crt"
    assert "not valid" not in cluster.run("secrets").stderr
    made.write_bytes(cluster.read("tarn-tls-gateway", "tls.crt"))
    done = cluster.run("secrets")
    assert done.returncode == 0, done.stderr
    assert "tarn/tarn-tls-endpoint is not valid for api " in done.stderr
    assert made.read_bytes() == cluster.read("tarn-tls-gateway", "tls.crt")


def test_jobs_get_the_key_of_a_user_who_is_no_administrator(cluster: Cluster) -> None:
    (cluster.folder / "objects" / JOBS_NAMESPACE).mkdir(parents=True)
    (cluster.folder / "answer").write_text(json.dumps(PAIR, indent=2))
    done = cluster.run("jobs-user")
    assert done.returncode == 0, done.stderr
    assert PAIR["secret_access_key"] not in done.stdout + done.stderr
    for key in ("access_key_id", "secret_access_key"):
        assert cluster.read("tarn-jobs", key, JOBS_NAMESPACE).decode() == PAIR[key]
    calls = (cluster.folder / "calls").read_text()
    assert "auth user create jobs --role Developer\n" in calls
    assert cluster.run("jobs-user").returncode == 0
    assert (cluster.folder / "calls").read_text() == calls, "it exists already"


def test_a_user_that_exists_gets_another_key(cluster: Cluster) -> None:
    (cluster.folder / "objects" / JOBS_NAMESPACE).mkdir(parents=True)
    (cluster.folder / "answer").write_text(json.dumps(PAIR))
    (cluster.folder / "etl").touch()
    done = cluster.run("jobs-user", NAMESPACE, JOBS_NAMESPACE, "etl")
    assert done.returncode == 0, done.stderr
    assert "user create" not in (cluster.folder / "calls").read_text()


def test_jobs_user_says_what_is_missing(cluster: Cluster) -> None:
    done = cluster.run("jobs-user")
    assert done.returncode == 1
    assert "Run deploy/k8s/secrets first" in done.stderr
    (cluster.folder / "objects" / JOBS_NAMESPACE).mkdir(parents=True)
    (cluster.folder / "answer").write_text("{}")
    done = cluster.run("jobs-user")
    assert done.returncode == 1
    assert "no access_key_id" in done.stderr
    assert (JOBS_NAMESPACE, "tarn-jobs") not in cluster.secrets()
