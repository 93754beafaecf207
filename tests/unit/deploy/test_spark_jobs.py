"""The Spark jobs for Kubernetes: what their pods may do, and that drivers, executors and images agree."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from certificates import Authority
from manifests import (
    JOBS,
    JOBS_NAMESPACE,
    K8S,
    NAMESPACE,
    OVERLAYS,
    Object,
    Peer,
    connections,
    installed,
    named,
    objects,
    pods,
    reachable_secrets,
    secrets_used,
    selects,
)

from tarn_spark.quickstart import parse_arguments

ROOT = K8S.parents[1]
IMAGES = tomllib.loads((ROOT / "deploy" / "images.toml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXECUTORS = "jobs/executors"
SPACE = "jobs/namespace"
SPARK = ("jobs/quickstart", EXECUTORS)
DRIVER = "spark-quickstart-executors"
ACCOUNT = "spark-executors"
PORTS = {7078, 7079}
CLIENT = {"tarn/client": "true"}

every_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


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


@pytest.mark.parametrize("name", SPARK)
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
            "ACCESS_KEY_ID": {"name": "tarn-jobs", "key": "access_key_id"},
            "SECRET_ACCESS_KEY": {"name": "tarn-jobs", "key": "secret_access_key"},
        }
        assert selects({"matchLabels": CLIENT}, pod["metadata"]["labels"])


@pytest.mark.parametrize("name", SPARK)
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


def peers(overlay: str) -> dict[str, Peer]:
    """Returns the pods of an overlay, those of the jobs, and others that try."""
    services = {name: each["metadata"]["labels"] for name, each in pods(overlay).items()}
    job = pods("jobs/quickstart")["spark-quickstart"]["metadata"]["labels"]
    inside = {
        "driver": pods(EXECUTORS)[DRIVER]["metadata"]["labels"],
        "executor": template()["metadata"]["labels"],
        "job": job,
        "bare job": {},
        # Whoever makes pods chooses their labels.
        **{f"job that calls itself {name}": labels for name, labels in services.items()},
        "job that calls itself scraper": {"tarn/scraper": "true"},
    }
    return {
        **{name: Peer(labels) for name, labels in services.items()},
        "client": Peer(CLIENT),
        **{name: Peer(labels, JOBS_NAMESPACE) for name, labels in inside.items()},
        "elsewhere": Peer(CLIENT, "elsewhere"),
    }


@every_overlay
def test_jobs_reach_both_endpoints_and_clients_among_them_two_rpcs_and_nobody_reaches_jobs(
    overlay: str,
) -> None:
    found = peers(overlay)
    inside = {name for name, each in found.items() if each.namespace == JOBS_NAMESPACE}
    spark = {name for name in inside if "tarn/spark" in found[name].labels}
    assert spark == {"driver", "executor"}
    settled = settings()
    assert {int(settled["spark.driver.port"]), int(settled["spark.blockManager.port"])} == PORTS
    clients = {name for name in inside if selects({"matchLabels": CLIENT}, found[name].labels)}
    assert {"driver", "job"} < clients
    assert "executor" not in clients
    expected = {
        (name, endpoint, port)
        for name in {*inside, "elsewhere"}
        for endpoint, port in (("gateway", 8000), ("api", 8001))
    }
    expected |= {
        (name, service, port)
        for name in clients
        for service, port in (("auth", 8101), ("graveler", 8102))
    }
    expected |= {(one, two, port) for one in spark for two in spark for port in PORTS}
    made = connections(installed(overlay, *JOBS), found)
    outside = {name for name, each in found.items() if each.namespace != NAMESPACE}
    # No policy is about pods elsewhere, so they reach themselves.
    crossing = {each for each in made if {*each[:2]} & outside and each[:2] != ("elsewhere",) * 2}
    assert crossing == expected


@every_overlay
def test_without_the_namespace_of_jobs_the_services_are_closed_to_it(overlay: str) -> None:
    found = {
        "gateway": Peer(pods(overlay)["gateway"]["metadata"]["labels"]),
        "api": Peer(pods(overlay)["api"]["metadata"]["labels"]),
        "auth": Peer(pods(overlay)["auth"]["metadata"]["labels"]),
        "graveler": Peer(pods(overlay)["graveler"]["metadata"]["labels"]),
        "job": Peer(CLIENT, JOBS_NAMESPACE),
    }
    reached = {each[1:] for each in connections(objects(overlay), found) if each[0] == "job"}
    assert {each for each in reached if each[0] != "job"} == {("gateway", 8000), ("api", 8001)}


def everything(overlay: str) -> list[Object]:
    return installed(overlay, *JOBS)


def secrets() -> set[tuple[str, str]]:
    """Returns the Secrets of all overlays and jobs."""
    found = {each for overlay in OVERLAYS for each in secrets_used(everything(overlay))}
    assert {(NAMESPACE, "tarn-installation"), (NAMESPACE, "tarn-admin")} < found
    return found


def moved(found: Sequence[Object], kinds: set[str], namespace: str) -> list[Object]:
    """Returns the objects with those of some kinds in another namespace."""
    made = copy.deepcopy(list(found))
    for each in made:
        if each["kind"] in kinds:
            each["metadata"]["namespace"] = namespace
    return made


@every_overlay
def test_pods_that_the_driver_makes_can_mount_no_secret_of_the_installation(overlay: str) -> None:
    """Computed from all roles: what it may read, and what a pod may mount that it may make."""
    reached = reachable_secrets(everything(overlay), JOBS_NAMESPACE, ACCOUNT, secrets())
    assert reached == {(JOBS_NAMESPACE, "tarn-jobs"), (JOBS_NAMESPACE, "tarn-tls-client")}


@pytest.mark.parametrize(
    "kinds", [{"Role", "RoleBinding"}, {"Role", "RoleBinding", "ServiceAccount"}]
)
def test_a_role_beside_the_services_would_reach_their_secrets(kinds: set[str]) -> None:
    """The check above fails if the Role lies in the namespace of the services."""
    found = moved(everything("dev"), kinds, NAMESPACE)
    reached = reachable_secrets(found, JOBS_NAMESPACE, ACCOUNT, secrets())
    assert (NAMESPACE, "tarn-installation") in reached
    assert (NAMESPACE, "tarn-admin") in reached


@pytest.mark.parametrize(
    ("resources", "verbs", "is_open"),
    [
        (["pods"], ["create"], True),
        (["pods"], ["get", "list", "watch", "delete"], False),
        (["pods/exec"], ["create"], True),
        (["jobs"], ["create"], True),
        (["cronjobs"], ["patch"], True),
        (["secrets"], ["get"], True),
        (["serviceaccounts/token"], ["create"], True),
        (["rolebindings"], ["create"], True),
        (["*"], ["get"], True),
        (["configmaps"], ["create", "get"], False),
    ],
)
def test_every_way_to_a_secret_counts(
    resources: list[str], verbs: list[str], is_open: bool
) -> None:
    found = everything("dev")
    role = {
        "kind": "ClusterRole",
        "metadata": {"name": "any"},
        "rules": [{"apiGroups": ["*"], "resources": resources, "verbs": verbs}],
    }
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "any"},
        "roleRef": {"kind": "ClusterRole", "name": "any"},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "gateway"}],
    }
    reached = reachable_secrets([*found, role, binding], NAMESPACE, "gateway", secrets())
    assert ((NAMESPACE, "tarn-installation") in reached) is is_open
    assert reachable_secrets(found, NAMESPACE, "gateway", secrets()) == set()


def test_no_account_of_any_overlay_can_reach_a_secret_of_the_services() -> None:
    for overlay in OVERLAYS:
        found = everything(overlay)
        accounts = {
            (each["metadata"]["namespace"], each["metadata"]["name"])
            for each in found
            if each["kind"] == "ServiceAccount"
        }
        # Pods without an account of their own run as this one.
        accounts |= {(place, "default") for place in (NAMESPACE, JOBS_NAMESPACE, "elsewhere")}
        for account in accounts:
            reached = reachable_secrets(found, *account, secrets())
            assert not {each for each in reached if each[0] == NAMESPACE}, account


def test_no_kind_of_role_is_left_out() -> None:
    """Roles appear in one folder only, so a new one is noticed."""
    places = {
        name
        for name in [*OVERLAYS, *JOBS]
        for each in objects(name)
        if "rbac.authorization.k8s.io" in each["apiVersion"]
    }
    assert places == {EXECUTORS}


def test_jobs_have_a_namespace_that_admits_restricted_pods_and_bounds_them() -> None:
    (space,) = named(SPACE, "Namespace").values()
    assert space["metadata"]["name"] == JOBS_NAMESPACE
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    (quota,) = named(SPACE, "ResourceQuota").values()
    assert quota["metadata"]["namespace"] == JOBS_NAMESPACE
    assert {"pods", "limits.cpu", "limits.memory"} <= quota["spec"]["hard"].keys()
    denied = [
        each
        for each in objects(SPACE)
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "default-deny"
    ]
    assert [each["metadata"]["namespace"] for each in denied] == [JOBS_NAMESPACE]
    assert denied[0]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for name in SPARK:
        assert {each["metadata"]["namespace"] for each in objects(name)} == {JOBS_NAMESPACE}


def test_jobs_call_services_by_names_that_their_certificates_have() -> None:
    """`deploy/k8s/secrets` signs `NAME.NAMESPACE`."""
    for name in SPARK:
        for pod in pods(name).values():
            (container,) = pod["spec"]["containers"]
            env = {each["name"]: each.get("value", "") for each in container["env"]}
            assert env["TARN_SERVER"] == f"graveler.{NAMESPACE}:8102"
            assert env["TARN_AUTH_SERVER"] == f"auth.{NAMESPACE}:8101"
            assert f"https://gateway.{NAMESPACE}:8000" in container["args"][-1]


def test_drivers_and_executors_trust_the_endpoint_by_a_file_that_is_no_secret() -> None:
    found = [(pod["spec"], name) for name in SPARK for pod in pods(name).values()]
    for spec, place in [*found, (template()["spec"], "executor")]:
        (container,) = spec["containers"]
        env = {each["name"]: each.get("value", "") for each in container["env"]}
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        assert env["TARN_ENDPOINT_CA"] == f"{mounts['s3']}/ca.crt", place
        volumes = {each["name"]: each for each in spec["volumes"]}
        assert volumes["s3"]["configMap"] == {"name": "tarn-s3-ca"}


@pytest.mark.skipif(shutil.which("keytool") is None, reason="Java is missing: tools/setup java")
def test_the_jvm_trusts_every_authority_of_the_file(tmp_path: Path) -> None:
    """While one authority replaces another, the file holds both."""
    made = [Authority(tmp_path / name, name) for name in ("old", "new")]
    file = tmp_path / "ca.crt"
    file.write_bytes(b"".join(each.path.read_bytes() for each in made))
    done = run_start(file)
    assert done.returncode == 0, done.stderr
    options = dict(each.removeprefix("-D").split("=") for each in done.stdout.split())
    store = options["javax.net.ssl.trustStore"]
    try:
        listed = subprocess.run(
            ["keytool", "-list", "-keystore", store, "-storepass", "changeit"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert {"tarn-1", "tarn-2"} <= {line.split(",")[0] for line in listed.splitlines()}
        assert listed.count("trustedCertEntry") > 20, "those of the system are still trusted"
    finally:
        shutil.rmtree(Path(store).parent)


@pytest.mark.skipif(shutil.which("keytool") is None, reason="Java is missing: tools/setup java")
def test_an_authority_that_java_cannot_read_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text("-----BEGIN CERTIFICATE-----\nbroken\n-----END CERTIFICATE-----\n")
    done = run_start(file)
    assert done.returncode == 1
    assert "holds no certificate that Java can read" in done.stderr


def run_start(authorities: Path) -> subprocess.CompletedProcess[str]:
    """Runs the start of the image `jobs` with a command that prints the options for the JVM."""
    script = (ROOT / "deploy" / "spark" / "start").read_text().replace("/usr/bin/tini -g --", "env")
    keytool = shutil.which("keytool")
    assert keytool is not None
    home = Path(keytool).resolve().parents[1]
    return subprocess.run(
        ["/bin/bash", "-c", script, "start", "/bin/sh", "-c", 'echo "$JAVA_TOOL_OPTIONS"'],
        env={**os.environ, "JAVA_HOME": str(home), "TARN_ENDPOINT_CA": str(authorities)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_start_of_executors_is_in_the_image() -> None:
    row = IMAGES["images"]["jobs"]
    assert row["entrypoint"] == ["/bin/bash", "/opt/spark/start"]
    text = (ROOT / "deploy" / "spark" / "start").read_text()
    for name in row["environment"]:
        assert name == "PYSPARK_PYTHON" or f"${name}" in text
