"""The Spark jobs for Kubernetes: what their pods may do, and that drivers, executors and images agree."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import kubernetes_validate
import pytest
import yaml
from manifests import K8S, allowed, named, objects, pods, selects

from tarn_spark.quickstart import parse_arguments

ROOT = K8S.parents[1]
IMAGES = tomllib.loads((ROOT / "deploy" / "images.toml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXECUTORS = "jobs/executors"
JOBS = ("jobs/quickstart", EXECUTORS)
DRIVER = "spark-quickstart-executors"
PORTS = {7078, 7079}


def template() -> Any:
    """Returns the pod of which Spark makes executors, from the driver's ConfigMap."""
    (config,) = named(EXECUTORS, "ConfigMap").values()
    return yaml.safe_load(config["data"]["executor.yaml"])


def settings() -> dict[str, str]:
    """Returns the settings of Spark in the driver's command."""
    (container,) = pods(EXECUTORS)[DRIVER]["spec"]["containers"]
    return dict(
        found.split("=", 1)
        for found in re.findall(r'--conf (\S+="?[^"\s]+"?)', container["args"][-1])
    )


@pytest.mark.parametrize("name", JOBS)
def test_drivers_take_their_image_and_their_key_from_the_installation(name: str) -> None:
    for pod in pods(name).values():
        (container,) = pod["spec"]["containers"]
        image = f"{IMAGES['prefix']}jobs:{PROJECT['version']}"
        assert container["image"] == image
        secrets = {
            each["name"]: each["valueFrom"]["secretKeyRef"]
            for each in container["env"]
            if "secretKeyRef" in each.get("valueFrom", {})
        }
        assert secrets == {
            "ACCESS_KEY_ID": {"name": "tarn-admin", "key": "access_key_id"},
            "SECRET_ACCESS_KEY": {"name": "tarn-admin", "key": "secret_access_key"},
        }
        assert selects({"matchLabels": {"tarn/client": "true"}}, pod["metadata"]["labels"])


@pytest.mark.parametrize("name", JOBS)
def test_the_command_of_a_driver_is_understood(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for pod in pods(name).values():
        script = pod["spec"]["containers"][0]["args"][-1]
        _, _, command = script.replace("\\\n", " ").partition("tarn_spark.quickstart ")
        monkeypatch.setattr("sys.argv", ["quickstart", *command.replace('"', "").split()])
        assert str(parse_arguments().jars) == "/opt/spark/jars"


def test_executors_are_valid_pods_without_rights() -> None:
    pod = {"metadata": {"name": "executor"}, **template()}
    pod["metadata"]["name"] = "executor"
    pod["spec"]["containers"][0]["image"] = "jobs"
    kubernetes_validate.validate(pod, "1.36", strict=True)
    spec = pod["spec"]
    (container,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    of_pod = spec["securityContext"]
    assert f"{of_pod['runAsUser']}:{of_pod['runAsGroup']}" == IMAGES["user"]
    assert not [volume for volume in spec["volumes"] if "secret" in volume]


def test_executors_have_the_image_of_the_driver_and_limits() -> None:
    (container,) = pods(EXECUTORS)[DRIVER]["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["EXECUTOR_IMAGE"] == container["image"]
    found = settings()
    assert found["spark.kubernetes.container.image"] == '"$EXECUTOR_IMAGE"'
    assert found["spark.kubernetes.executor.limit.cores"]
    assert found["spark.executor.memory"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert (
        found["spark.kubernetes.executor.podTemplateFile"] == f"{mounts['executor']}/executor.yaml"
    )
    volumes = {each["name"]: each for each in pods(EXECUTORS)[DRIVER]["spec"]["volumes"]}
    assert [volumes["executor"]["configMap"]["name"]] == [*named(EXECUTORS, "ConfigMap")]


def test_the_driver_may_only_keep_executors() -> None:
    (role,) = named(EXECUTORS, "Role").values()
    resources = {name for rule in role["rules"] for name in rule["resources"]}
    assert resources == {"pods", "configmaps", "persistentvolumeclaims"}
    (binding,) = named(EXECUTORS, "RoleBinding").values()
    spec = pods(EXECUTORS)[DRIVER]["spec"]
    assert [each["name"] for each in binding["subjects"]] == [spec["serviceAccountName"]]
    assert [each["name"] for each in binding["subjects"]] == [*named(EXECUTORS, "ServiceAccount")]
    assert not [each for each in objects(EXECUTORS) if each["kind"].startswith("Cluster")]


def test_driver_and_executors_reach_each_other_and_nobody_else_reaches_them() -> None:
    found = settings()
    assert {int(found["spark.driver.port"]), int(found["spark.blockManager.port"])} == PORTS
    labels = {
        "driver": pods(EXECUTORS)[DRIVER]["metadata"]["labels"],
        "executor": template()["metadata"]["labels"],
        "stranger": {"tarn/client": "true"},
    }
    reached = {each for each in allowed(EXECUTORS, labels) if each[2] in PORTS}
    pairs = {(one, two) for one in ("driver", "executor") for two in ("driver", "executor")}
    # The stranger is denied by the default of the installation, which is not part of this folder.
    ours = {(one, two, port) for one, two, port in reached if "stranger" not in (one, two)}
    assert ours == {(*pair, port) for pair in pairs for port in PORTS}
    assert not {each for each in reached if each[1] != "stranger" and each[0] == "stranger"}


def test_the_start_of_executors_is_in_the_image() -> None:
    row = IMAGES["images"]["jobs"]
    assert row["entrypoint"] == ["/bin/bash", "/opt/spark/start"]
    text = (ROOT / "deploy" / "spark" / "start").read_text()
    for name in row["environment"]:
        assert name == "PYSPARK_PYTHON" or f"${name}" in text
