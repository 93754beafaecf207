"""The Kubernetes manifests as a cluster gets them, and the network that their policies allow."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

__all__ = ["JOBS", "K8S", "OVERLAYS", "allowed", "named", "objects", "pod_specs", "pods", "selects"]

K8S = Path(__file__).parents[2] / "deploy" / "k8s"
OVERLAYS = sorted(path.name for path in (K8S / "overlays").iterdir())
JOBS = sorted(f"jobs/{path.name}" for path in (K8S / "jobs").iterdir())
"""Manifests that are applied beside an overlay; a name is a folder below `K8S`."""
_POD_KINDS = ("Deployment", "StatefulSet", "Job", "CronJob", "DaemonSet")

Object = dict[str, Any]


def kubectl() -> str:
    """Returns the path of kubectl, which a wheel of the development environment brings along."""
    found = shutil.which("kubectl", path=str(Path(sys.executable).parent)) or shutil.which(
        "kubectl"
    )
    assert found, "kubectl is missing: run make setup"
    return str(found)


@functools.cache
def objects(overlay: str) -> Sequence[Object]:
    """Returns the objects of an overlay, or of another folder below `K8S`, rendered by kustomize."""
    folder = K8S / overlay if "/" in overlay else K8S / "overlays" / overlay
    command = [kubectl(), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr.lower(), done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def named(overlay: str, kind: str) -> dict[str, Object]:
    """Returns the objects of a kind by their names."""
    return {each["metadata"]["name"]: each for each in objects(overlay) if each["kind"] == kind}


def pods(overlay: str) -> dict[str, Object]:
    """Returns the pod templates by the names of their workloads."""
    return {
        each["metadata"]["name"]: each["spec"].get("jobTemplate", each)["spec"]["template"]
        for each in objects(overlay)
        if each["kind"] in _POD_KINDS
    }


def pod_specs() -> Iterator[tuple[str, str, Object]]:
    """Yields overlay, workload and pod of every workload, also of the jobs."""
    for overlay in [*OVERLAYS, *JOBS]:
        for name, template in pods(overlay).items():
            yield overlay, name, template["spec"]


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Returns whether a label selector matches; an empty one matches everything."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for rule in selector.get("matchExpressions", ()):
        assert rule["operator"] == "In", "the only operator in use"
        if labels.get(rule["key"]) not in rule["values"]:
            return False
    return True


def allowed(overlay: str, labels: Mapping[str, Mapping[str, str]]) -> set[tuple[str, str, int]]:
    """Returns the connections that the policies allow between pods of the namespace.

    Args:
        overlay: name of the overlay.
        labels: the labels of the pods by their names.

    Returns:
        Source, target and port of each, of the ports that some policy names.
    """
    policies = [each["spec"] for each in objects(overlay) if each["kind"] == "NetworkPolicy"]
    ports = {
        port["port"]
        for policy in policies
        for way in ("ingress", "egress")
        for rule in policy.get(way, ())
        for port in rule.get("ports", ())
    }

    def passes(
        way: str, peers: str, owner: Mapping[str, str], other: Mapping[str, str], port: int
    ) -> bool:
        kind = way.capitalize()
        applied = [
            each
            for each in policies
            if kind in each["policyTypes"] and selects(each["podSelector"], owner)
        ]
        if not applied:
            return True
        return any(
            port in {each["port"] for each in rule["ports"]}
            and any(_is_peer(peer, other) for peer in rule[peers])
            for policy in applied
            for rule in policy.get(way, ())
        )

    return {
        (source, target, port)
        for source, its in labels.items()
        for target, theirs in labels.items()
        for port in ports
        if passes("egress", "to", its, theirs, port)
        and passes("ingress", "from", theirs, its, port)
    }


def _is_peer(peer: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Returns whether a peer of a rule means a pod of this namespace; address blocks mean none."""
    if "ipBlock" in peer:
        return False
    if "namespaceSelector" in peer:
        is_any = peer["namespaceSelector"] == {}
        return is_any and selects(peer.get("podSelector", {}), labels)
    return selects(peer["podSelector"], labels)
