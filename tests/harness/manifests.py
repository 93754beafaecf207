"""The Kubernetes manifests as a cluster gets them, the network that policies allow, and the Secrets that roles open."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

__all__ = [
    "JOBS",
    "JOBS_NAMESPACE",
    "K8S",
    "NAMESPACE",
    "OVERLAYS",
    "Object",
    "Peer",
    "allowed",
    "connections",
    "image_name",
    "installed",
    "named",
    "objects",
    "pod_specs",
    "pods",
    "reachable_secrets",
    "secrets_used",
    "selects",
]

K8S = Path(__file__).parents[2] / "deploy" / "k8s"
OVERLAYS = sorted(path.name for path in (K8S / "overlays").iterdir())
JOBS = sorted(f"jobs/{path.name}" for path in (K8S / "jobs").iterdir())
"""Manifests that are applied beside an overlay; a name is a folder below `K8S`."""
NAMESPACE = "tarn"
JOBS_NAMESPACE = "tarn-jobs"
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
    # The loader that is written in Python takes ten times as long.
    loaded = yaml.load_all(done.stdout, yaml.CSafeLoader)
    return [each for each in loaded if each]


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


def pod_specs(folder: str) -> list[Object]:
    """Returns the pods of the workloads of an overlay, or of another folder below `K8S`."""
    return [template["spec"] for template in pods(folder).values()]


def image_name(reference: str) -> str:
    """Returns the last part of the name of an image, without tag and digest."""
    return reference.partition("@")[0].rpartition("/")[2].partition(":")[0]


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Returns whether a label selector matches; an empty one matches everything."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for rule in selector.get("matchExpressions", ()):
        assert rule["operator"] == "In", "the only operator in use"
        if labels.get(rule["key"]) not in rule["values"]:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Peer:
    """A pod as policies see it."""

    labels: Mapping[str, str]
    namespace: str = NAMESPACE


def installed(overlay: str, *jobs: str) -> list[Object]:
    """Returns the objects of an overlay, and of folders that are applied beside it."""
    return [each for name in (overlay, *jobs) for each in objects(name)]


def allowed(overlay: str, labels: Mapping[str, Mapping[str, str]]) -> set[tuple[str, str, int]]:
    """Returns the connections that the policies of an overlay allow between pods of its namespace.

    Args:
        overlay: name of the overlay.
        labels: the labels of the pods by their names.
    """
    return connections(objects(overlay), {name: Peer(each) for name, each in labels.items()})


def connections(found: Iterable[Object], peers: Mapping[str, Peer]) -> set[tuple[str, str, int]]:
    """Returns the connections that the policies allow between pods.

    Args:
        found: the objects of the cluster.
        peers: the pods by their names.

    Returns:
        Source, target and port of each, of the ports that some policy names.
    """
    policies = [each for each in found if each["kind"] == "NetworkPolicy"]
    ports = {
        port["port"]
        for policy in policies
        for way in ("ingress", "egress")
        for rule in policy["spec"].get(way, ())
        for port in rule.get("ports", ())
    }

    def passes(way: str, key: str, owner: Peer, other: Peer, port: int) -> bool:
        applied = [
            each["spec"]
            for each in policies
            if each["metadata"]["namespace"] == owner.namespace
            and way.capitalize() in each["spec"]["policyTypes"]
            and selects(each["spec"]["podSelector"], owner.labels)
        ]
        if not applied:
            return True
        return any(
            port in {each["port"] for each in rule["ports"]}
            and any(_is_meant(peer, owner.namespace, other) for peer in rule[key])
            for policy in applied
            for rule in policy.get(way, ())
        )

    return {
        (source, target, port)
        for source, its in peers.items()
        for target, theirs in peers.items()
        for port in ports
        if passes("egress", "to", its, theirs, port)
        and passes("ingress", "from", theirs, its, port)
    }


def _is_meant(peer: Mapping[str, Any], namespace: str, pod: Peer) -> bool:
    """Returns whether a peer of a rule of a namespace means a pod; address blocks mean none."""
    if "ipBlock" in peer:
        return False
    if "namespaceSelector" in peer:
        # Kubernetes gives every namespace this label, and it cannot be changed. The policies use no other.
        own = {"kubernetes.io/metadata.name": pod.namespace}
        is_inside = selects(peer["namespaceSelector"], own)
    else:
        is_inside = pod.namespace == namespace
    return is_inside and selects(peer.get("podSelector", {}), pod.labels)


_MAKES_PODS = frozenset(
    {
        "pods",
        "pods/ephemeralcontainers",
        "replicationcontrollers",
        "deployments",
        "replicasets",
        "statefulsets",
        "daemonsets",
        "jobs",
        "cronjobs",
        "podtemplates",
    }
)
_ENTERS_PODS = frozenset({"pods/exec", "pods/attach", "serviceaccounts/token"})
_WRITES = frozenset({"create", "update", "patch", "*"})
_GRANTS = frozenset({"roles", "rolebindings", "clusterroles", "clusterrolebindings"})


def reachable_secrets(
    found: Sequence[Object], namespace: str, account: str, existing: Iterable[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Returns the Secrets that an account can get at.

    It can read some, or make or enter a pod in a namespace: a pod may mount every Secret of its namespace, and run as
    every account of it, whose rights count, too.

    Args:
        found: the objects of the cluster.
        namespace, account: the ServiceAccount.
        existing: the Secrets of the cluster, as namespace and name.

    Returns:
        Some of `existing`.
    """
    todo, seen, open_places = [(namespace, account)], set[tuple[str, str]](), set[str]()
    places = {place for place, _ in existing}
    while todo:
        who = todo.pop()
        if who in seen:
            continue
        seen.add(who)
        for place, rules in _rights(found, *who):
            if any(map(_opens_secrets, rules)):
                opened = places if place == "*" else {place}
                open_places |= opened
                todo += [
                    (each["metadata"]["namespace"], each["metadata"]["name"])
                    for each in found
                    if each["kind"] == "ServiceAccount" and each["metadata"]["namespace"] in opened
                ]
    return {each for each in existing if each[0] in open_places}


def _rights(
    found: Sequence[Object], namespace: str, account: str
) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
    """Yields where an account has rights, `*` for everywhere, and its rules there."""
    roles = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in found
        if each["kind"] in ("Role", "ClusterRole")
    }
    groups = {
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        "system:authenticated",
    }
    for each in found:
        if each["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        is_bound = any(
            (subject["kind"], subject.get("namespace"), subject["name"])
            == ("ServiceAccount", namespace, account)
            or (subject["kind"] == "Group" and subject["name"] in groups)
            for subject in each["subjects"]
        )
        if is_bound:
            place = each["metadata"].get("namespace", "")
            kind = each["roleRef"]["kind"]
            role = roles[kind, place if kind == "Role" else "", each["roleRef"]["name"]]
            yield place or "*", role["rules"]


def _opens_secrets(rule: Mapping[str, Any]) -> bool:
    """Returns whether a rule leads to the Secrets of its namespace."""
    resources, verbs = set(rule["resources"]), set(rule["verbs"])
    return (
        bool(resources & {"secrets", "*"})
        or bool(verbs & {"escalate", "bind", "impersonate"})
        or (bool(resources & (_MAKES_PODS | _GRANTS)) and bool(verbs & _WRITES))
        or (bool(resources & _ENTERS_PODS) and bool(verbs & (_WRITES | {"get"})))
    )


def secrets_used(found: Iterable[Object]) -> set[tuple[str, str]]:
    """Returns the Secrets that pods, ingresses and gateways of these objects name, as namespace and name."""
    return {
        (each["metadata"]["namespace"], name)
        for each in found
        if "namespace" in each["metadata"]
        for name in _secret_names(each)
    }


def _secret_names(value: object) -> Iterator[str]:
    """Yields the names of Secrets anywhere in an object."""
    if isinstance(value, list):
        for inner in value:
            yield from _secret_names(inner)
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if key == "secretName" and isinstance(inner, str):
            yield inner
        elif key in ("secretKeyRef", "secretRef"):
            yield inner["name"]
        elif key in ("certificateRefs", "imagePullSecrets"):
            yield from (ref["name"] for ref in inner)
        elif key == "secret" and isinstance(inner, dict) and "name" in inner:
            yield inner["name"]
        else:
            yield from _secret_names(inner)
