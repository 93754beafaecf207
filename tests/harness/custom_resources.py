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

_GROUP: Final = "monitoring.coreos.com/v1"
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


def _resource(kind: str, spec: Schema) -> Schema:
    metadata = _object(("name",), name=_TEXT, namespace=_TEXT, labels=_TEXTS, annotations=_TEXTS)
    return _object(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": _GROUP},
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
_SCHEMAS: Final = {
    "PrometheusRule": _resource(
        "PrometheusRule",
        _object(("groups",), groups=_list(_object(("name",), name=_TEXT, rules=_list(_ALERT)))),
    ),
    "PodMonitor": _resource(
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
    """Returns whether an object is of a kind that an operator defines: Kubernetes' own groups end with `.k8s.io`, or
    have no dot."""
    group, _, version = str(found["apiVersion"]).rpartition("/")
    assert version
    return "." in group and not group.endswith(".k8s.io")


def validate_custom(found: dict[str, Any]) -> None:
    """Validates a custom resource.

    Raises:
        KeyError: there is no schema of its kind.
        jsonschema.ValidationError: it does not fit.
    """
    Draft202012Validator(_SCHEMAS[found["kind"]]).validate(found)
