"""The scripts of deploy/k8s, with a kubectl that answers from files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from manifests import K8S, kubectl, named

KUBECTL = f"""#!{sys.executable}
import json, pathlib, subprocess, sys
folder, real = pathlib.Path(__file__).parent, {kubectl()!r}
namespace, verb, kind, *rest = sys.argv[2:]
assert sys.argv[1] == "-n" and namespace == "lake", sys.argv
if verb == "get" and kind in ("deployments", "pods"):
    assert "jsonpath={{.items[*].metadata.name}}" in rest, rest
    print(*sorted(each.name for each in (folder / kind).iterdir()), end="")
elif verb == "get":
    file = folder / (kind + "s") / rest[0]
    if file.exists():  # kubectl itself evaluates the path
        local = [real, "patch", "--local", "-f", str(file), "--type", "merge", "-p", "{{}}", "-o", rest[-1]]
        sys.exit(subprocess.run(local).returncode)
    assert "--ignore-not-found" in rest
elif verb == "patch":
    file = folder / "deployments" / rest[0]
    local = [real, "patch", "--local", "-f", str(file), *rest[1:], "-o", "json"]
    file.write_bytes(subprocess.run(local, check=True, capture_output=True).stdout)
    print(rest[0] + ": rolled")
elif verb == "exec":
    env = {{"PATH": str(folder / "bin"), **json.loads((folder / "pods" / kind).read_text())}}
    sys.exit(subprocess.run(rest[1:], env=env).returncode)
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Objects as files in `deployments`, `secrets` and `pods`."""

    folder: Path

    def add(self, kind: str, name: str, content: Mapping[str, Any]) -> None:
        place = self.folder / kind
        place.mkdir(exist_ok=True)
        (place / name).write_text(json.dumps(content))

    def secret(self, name: str, **data: str) -> None:
        """Creates or replaces a Secret."""
        kept = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
        self.add("secrets", name, kept)

    def template(self, name: str) -> dict[str, Any]:
        """The pod template of a Deployment."""
        text = (self.folder / "deployments" / name).read_text()
        return dict(yaml.safe_load(text)["spec"]["template"])

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(K8S / script), "lake"],
            env={**os.environ, "KUBECTL": str(self.folder / "kubectl")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    tool = tmp_path / "kubectl"
    tool.write_text(KUBECTL)
    tool.chmod(0o755)
    return Cluster(tmp_path)


def test_pods_roll_exactly_when_a_secret_changes_that_they_read_at_the_start(
    cluster: Cluster,
) -> None:
    """Grafana has its password as a variable, and this gateway a file that an overlay adds."""
    for name in ("auth", "gateway", "grafana"):
        cluster.add("deployments", name, named("dev-monitoring", "Deployment")[name])
    gateway = yaml.safe_load((cluster.folder / "deployments" / "gateway").read_text())
    volumes = gateway["spec"]["template"]["spec"]["volumes"]
    for name in ("of-an-overlay", "tarn-cassandra-tls"):
        volumes.append({"name": name, "secret": {"secretName": name}})
    cluster.add("deployments", "gateway", gateway)
    reloaded = ("tarn-installation", "tarn-tls-gateway", "tarn-tls-endpoint", "tarn-bucket-ca")
    for name in ("of-an-overlay", "tarn-grafana", "tarn-cassandra-tls", *reloaded):
        cluster.secret(name, key="b2xk")

    def rolled() -> set[str]:
        before = {name: cluster.template(name) for name in ("auth", "gateway", "grafana")}
        done = cluster.run("roll")
        assert done.returncode == 0, done.stderr
        after = {name for name, kept in before.items() if cluster.template(name) != kept}
        assert {
            line.split(":")[0] for line in done.stdout.splitlines() if "rolled" in line
        } == after
        return after

    assert rolled() == {"gateway", "grafana"}, "the first run notes what is there"
    assert rolled() == set()
    for name in (*reloaded, "tarn-cassandra-tls"):
        cluster.secret(name, key="bmV3")
    assert rolled() == set(), "the services read these again"
    cluster.secret("of-an-overlay", key="bmV3")
    assert rolled() == {"gateway"}
    cluster.secret("tarn-grafana", key="bmV3")
    assert rolled() == {"grafana"}


@pytest.mark.parametrize("overlay", ["dev", "full"])
def test_the_secrets_that_do_not_roll_are_those_that_the_services_mount(overlay: str) -> None:
    (line,) = (x for x in (K8S / "roll").read_text().splitlines() if x.startswith("reloaded="))
    mounted = {
        volume["secret"]["secretName"]
        for name in ("api", "auth", "compactor", "gateway", "graveler")
        for volume in named(overlay, "Deployment")[name]["spec"]["template"]["spec"]["volumes"]
        if "secret" in volume
    }
    assert set(line.split("'")[1].split()) == mounted, "beside those of `reloaded+=`"


def test_doctor_asks_every_pod_of_graveler_and_fails_if_one_does(cluster: Cluster) -> None:
    tarn = cluster.folder / "bin" / "tarn"
    tarn.parent.mkdir()
    tarn.write_text('#!/bin/sh\necho "asked: $*"\nexit "${FAILS:-0}"\n')
    tarn.chmod(0o755)
    cluster.add("pods", "graveler-a", {})
    cluster.add("pods", "graveler-b", {"TARN_TELEMETRY_ADMIN_ADDRESS": "0.0.0.0:8110"})
    done = cluster.run("doctor")
    assert done.returncode == 0, done.stderr
    lines = [
        "==> graveler-a",
        "asked: doctor --admin 127.0.0.1:8112",
        "==> graveler-b",
        "asked: doctor --admin 127.0.0.1:8110",
    ]
    assert done.stdout.splitlines() == lines
    cluster.add("pods", "graveler-a", {"FAILS": "1"})
    done = cluster.run("doctor")
    assert done.returncode == 1
    assert done.stdout.splitlines() == lines, "the other pods are still asked"
    assert "graveler-a" in done.stderr


def test_doctor_says_that_no_pod_runs(cluster: Cluster) -> None:
    (cluster.folder / "pods").mkdir()
    done = cluster.run("doctor")
    assert done.returncode == 1
    assert "no pod of graveler" in done.stderr


DIGESTS = {name: f"sha256:{number:064x}" for number, name in enumerate(("auth", "tools", "jobs"))}


def pinned(tmp_path: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Runs `pin` on a list of `make images`."""
    made = "".join(f"localhost/tarn/{name}:1.2.3 {each}\n" for name, each in DIGESTS.items())
    listed = tmp_path / "images.digests"
    listed.write_text(text or made)
    command = [str(K8S / "pin"), "registry.test:5000/lake/", str(listed), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_pin_puts_the_digests_of_an_archive_into_an_overlay(tmp_path: Path) -> None:
    """Kustomize renders them: for images with the place of `make images`, and `tools` of the components."""
    done = pinned(tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "kustomization.yaml").write_text(done.stdout)
    overlay = {"resources": ["pod.yaml"], "components": ["images"]}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))
    names = ["localhost/tarn/auth:0.0.1", "tools", "localhost/tarn/jobs:0.0.1"]
    containers = [{"name": f"c{number}", "image": each} for number, each in enumerate(names)]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": containers},
    }
    (tmp_path / "pod.yaml").write_text(json.dumps(pod))
    command = [kubectl(), "kustomize", str(tmp_path)]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = [each["image"] for each in yaml.safe_load(rendered)["spec"]["containers"]]
    assert found == [f"registry.test:5000/lake/{name}@{each}" for name, each in DIGESTS.items()]


def test_pin_asks_for_the_tag_if_there_are_several(tmp_path: Path) -> None:
    text = "".join(f"localhost/tarn/auth:{tag} {DIGESTS['auth']}\n" for tag in ("1.0.0", "1.1.0"))
    done = pinned(tmp_path, text=text)
    assert done.returncode == 1
    assert "1.0.0 1.1.0" in done.stderr
    done = pinned(tmp_path, "1.1.0", text=text)
    assert done.returncode == 0
    assert done.stdout.count("digest:") == 1
    assert "no image with the tag 2" in pinned(tmp_path, "2", text=text).stderr


def test_pin_refuses_what_is_no_digest(tmp_path: Path) -> None:
    done = pinned(tmp_path, text="localhost/tarn/auth:1.0.0 latest\n")
    assert done.returncode == 1
    assert "no digest" in done.stderr
    assert done.stdout == ""


def test_the_example_has_the_images_that_pin_knows() -> None:
    """`overlays/prod/images` in the form of the script, with digests that name nothing."""
    table = tomllib.loads((K8S.parents[1] / "deploy" / "images.toml").read_text())
    example = yaml.safe_load((K8S / "overlays/prod/images/kustomization.yaml").read_text())
    names = {each["name"] for each in example["images"]}
    assert names == {"tools"} | {f"{table['prefix']}{name}" for name in table["images"]}
    assert {each["digest"] for each in example["images"]} == {f"sha256:{0:064x}"}
