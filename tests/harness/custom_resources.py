"""Schemas of the custom resources in the manifests, as strict as those of the cluster's own kinds.

The API server checks a custom resource by the schema of its operator, and drops fields that the schema does not know,
so a misspelt field is lost in silence. These schemas have the fields that the manifests use, and refuse all others.
Compare a new field with the operator's reference before you add it here.
"""

from __future__ import annotations

from typing import Any, Final

from jsonschema import Draft202012Validator

__all__ = ["is_custom", "validate_custom"]

Schema = dict[str, Any]

_MONITORING: Final = "monitoring.coreos.com/v1"
_GATEWAY: Final = "gateway.networking.k8s.io/v1"
_TEXT: Final = {"type": "string", "minLength": 1}
_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_DURATION: Final = {"type": "string", "pattern": "^([0-9]+(ms|y|w|d|h|m|s))+$"}


def _object(required: tuple[str, ...], **fields: Schema) -> Schema:
    return {
        "type": "object",
        "properties": fields,
        "required": list(required),
        "additionalProperties": False,
    }


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 1}


def _resource(group: str, kind: str, spec: Schema) -> Schema:
    metadata = _object(("name",), name=_TEXT, namespace=_TEXT, labels=_TEXTS, annotations=_TEXTS)
    return _object(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": group},
        kind={"const": kind},
        metadata=metadata,
        spec=spec,
    )


_ALERT: Final = _object(
    ("alert", "expr"),
    alert=_TEXT,
    expr=_TEXT,
    **{"for": _DURATION},
    labels=_TEXTS,
    annotations=_TEXTS,
)
_ENDPOINT: Final = _object(
    ("port",),
    port=_TEXT,
    path={"type": "string", "pattern": "^/"},
    interval=_DURATION,
    scrapeTimeout=_DURATION,
)
_NAME: Final = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 253}
_HOST: Final = {
    "type": "string",
    "pattern": r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
}
_PORT: Final = {"type": "integer", "minimum": 1, "maximum": 65535}
_LISTENER: Final = _object(
    ("name", "hostname", "port", "protocol", "tls"),
    name=_NAME,
    hostname=_HOST,
    port=_PORT,
    protocol={"const": "HTTPS"},
    tls=_object(
        ("certificateRefs",),
        mode={"const": "Terminate"},
        certificateRefs=_list(_object(("name",), kind={"const": "Secret"}, name=_NAME)),
    ),
    allowedRoutes=_object(
        ("namespaces",),
        namespaces=_object(("from",), **{"from": {"enum": ["All", "Same"]}}),
    ),
)
_MATCH: Final = _object(
    ("path",),
    path=_object(
        ("type", "value"), type={"enum": ["Exact", "PathPrefix"]}, value={"pattern": "^/"}
    ),
)
_ROUTE: Final = _object(
    ("backendRefs",),
    matches=_list(_MATCH),
    backendRefs=_list(_object(("name", "port"), name=_NAME, port=_PORT)),
    timeouts=_object((), request={"type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$"}),
)
_BACKEND_TLS: Final = _object(
    ("targetRefs", "validation"),
    targetRefs=_list(
        _object(
            ("group", "kind", "name"),
            group={"const": ""},
            kind={"const": "Service"},
            name=_NAME,
            sectionName=_NAME,
        )
    ),
    validation=_object(
        ("caCertificateRefs", "hostname"),
        caCertificateRefs=_list(
            _object(
                ("group", "kind", "name"),
                group={"const": ""},
                kind={"const": "ConfigMap"},
                name=_NAME,
            )
        ),
        hostname=_HOST,
    ),
)
_SCHEMAS: Final = {
    "BackendTLSPolicy": _resource(_GATEWAY, "BackendTLSPolicy", _BACKEND_TLS),
    "Gateway": _resource(
        _GATEWAY,
        "Gateway",
        _object(
            ("gatewayClassName", "listeners"), gatewayClassName=_NAME, listeners=_list(_LISTENER)
        ),
    ),
    "HTTPRoute": _resource(
        _GATEWAY,
        "HTTPRoute",
        _object(
            ("parentRefs", "rules"),
            parentRefs=_list(_object(("name",), name=_NAME, sectionName=_NAME)),
            hostnames=_list(_HOST),
            rules=_list(_ROUTE),
        ),
    ),
    "PrometheusRule": _resource(
        _MONITORING,
        "PrometheusRule",
        _object(("groups",), groups=_list(_object(("name",), name=_TEXT, rules=_list(_ALERT)))),
    ),
    "PodMonitor": _resource(
        _MONITORING,
        "PodMonitor",
        _object(
            ("selector", "podMetricsEndpoints"),
            jobLabel=_TEXT,
            selector=_object(("matchLabels",), matchLabels=_TEXTS),
            podMetricsEndpoints=_list(_ENDPOINT),
        ),
    ),
}


def is_custom(found: dict[str, Any]) -> bool:
    """Returns whether an object is of a kind that an operator or the Gateway API defines. Kubernetes' own groups end
    with `.k8s.io`, or have no dot."""
    group, _, version = str(found["apiVersion"]).rpartition("/")
    assert version
    return f"{group}/{version}" == _GATEWAY or ("." in group and not group.endswith(".k8s.io"))


def validate_custom(found: dict[str, Any]) -> None:
    """Validates a custom resource.

    Raises:
        KeyError: there is no schema of its kind.
        jsonschema.ValidationError: it does not fit.
    """
    Draft202012Validator(_SCHEMAS[found["kind"]]).validate(found)
