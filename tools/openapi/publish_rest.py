"""Writes the published interface of the REST endpoint, services/api/tarn_api/openapi.json, which it serves.

    .venv/bin/python tools/openapi/publish_rest.py            after a change of protos/tarn_rest/ or of the table
    .venv/bin/python tools/openapi/publish_rest.py --break    also if it breaks clients of the stored one

It is the documents of protos/tarn_rest/ and what `tarn_api.operations.table` offers of them: an operation that answers
501 says so, and has no other answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tarn_api.browsers import SECURE_NAME
from tarn_api.endpoint import BASE, OWN_BASE
from tarn_api.operations.table import PUBLIC, TABLE, Refusal

ROOT: Final = Path(__file__).resolve().parents[2]
STORED: Final = ROOT / "services" / "api" / "tarn_api" / "openapi.json"
DOCUMENTS: Final = {
    BASE: ROOT / "protos" / "tarn_rest" / "lakefs.yaml",
    OWN_BASE: ROOT / "protos" / "tarn_rest" / "tarn.yaml",
}
METHODS: Final = ("get", "head", "post", "put", "patch", "delete")
SECURITY: Final = {
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": SECURE_NAME},
}

Node = dict[str, Any]


def published() -> Node:
    """Returns the interface."""
    paths: Node = {}
    components: Node = {"securitySchemes": SECURITY}
    for base, file in DOCUMENTS.items():
        document = yaml.safe_load(file.read_text())
        for path, item in document["paths"].items():
            paths[base + path] = {
                key: _operation(value) if key in METHODS else value for key, value in item.items()
            }
        for kind, parts in document["components"].items():
            if kind != "securitySchemes":
                components.setdefault(kind, {}).update(parts)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Tarn", "version": "1"},
        "servers": [{"url": "/"}],
        "security": [{name: []} for name in SECURITY],
        "paths": paths,
        "components": components,
    }


def _operation(found: Node) -> Node:
    name = found["operationId"]
    operation = {key: value for key, value in found.items() if key != "security"}
    if name in PUBLIC:
        operation["security"] = []
    responses = {str(status): answer for status, answer in found["responses"].items()}
    responses["default"] = {"$ref": "#/components/responses/ServerError"}
    row = TABLE[name]
    if isinstance(row, Refusal):
        operation["x-tarn-not-offered"] = row.reason
        responses = {"default": responses["default"]}
    return operation | {"responses": responses}


def breaks(before: Node, after: Node) -> list[str]:
    """Returns what a client of an earlier interface misses in a later one, or must newly send."""
    found = []
    later = dict(_operations(after))
    for place, old in _operations(before):
        new = later.get(place)
        if new is None:
            found.append(f"{place}: it is gone")
            continue
        if "x-tarn-not-offered" in old:
            continue
        if "x-tarn-not-offered" in new:
            found.append(f"{place}: it is not offered any more")
            continue
        found += [
            f"{place}: {text}"
            for text in (
                *_parameters(_of_place(before, place, old), _of_place(after, place, new)),
                *_bodies(before, after, old.get("requestBody", {}), new.get("requestBody", {})),
                *_answers(before, after, old["responses"], new["responses"]),
            )
        ]
    return sorted(set(found))


def _operations(document: Node) -> Iterator[tuple[str, Node]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield f"{method.upper()} {path}", item[method]


def _of_place(document: Node, place: str, operation: Node) -> dict[tuple[str, str], Node]:
    shared = document["paths"][place.partition(" ")[2]].get("parameters", [])
    both = [_resolved(document, each) for each in (*shared, *operation.get("parameters", []))]
    return {
        (each["in"], each["name"]): {**each, "schema": _resolved(document, each["schema"])}
        for each in both
    }


def _parameters(
    old: dict[tuple[str, str], Node], new: dict[tuple[str, str], Node]
) -> Iterator[str]:
    for key, parameter in old.items():
        name = f"{key[0]} parameter {key[1]}"
        if key not in new:
            yield f"{name} is gone"
        elif parameter["schema"].get("type") != new[key]["schema"].get("type"):
            yield f"{name} has another type"
    for key, parameter in new.items():
        if parameter.get("required") and not old.get(key, {}).get("required"):
            yield f"{key[0]} parameter {key[1]} is required"


def _bodies(before: Node, after: Node, old: Node, new: Node) -> Iterator[str]:
    old, new = _resolved(before, old), _resolved(after, new)
    if new.get("required") and not old.get("required"):
        yield "a body is required"
    yield from _contents(before, after, old, new, "body", is_request=True)


def _answers(before: Node, after: Node, old: Node, new: Node) -> Iterator[str]:
    for status, answer in old.items():
        if status not in new:
            yield f"status {status} is gone"
            continue
        parts = _resolved(before, answer), _resolved(after, new[status])
        yield from _contents(before, after, *parts, f"answer {status}", is_request=False)


def _contents(
    before: Node, after: Node, old: Node, new: Node, what: str, *, is_request: bool
) -> Iterator[str]:
    for kind, content in old.get("content", {}).items():
        if kind not in new.get("content", {}):
            yield f"{what} of {kind} is gone"
            continue
        pair = content.get("schema", {}), new["content"][kind].get("schema", {})
        yield from _schemas(before, after, *pair, what, frozenset(), is_request=is_request)


def _schemas(
    before: Node,
    after: Node,
    old: Node,
    new: Node,
    what: str,
    seen: frozenset[str],
    *,
    is_request: bool,
) -> Iterator[str]:
    if "$ref" in old:
        if old["$ref"] in seen:
            return
        seen |= {old["$ref"]}
    old, new = _whole(before, old), _whole(after, new)
    if old.get("type") != new.get("type"):
        yield f"{what} has another type"
        return
    values, later = set(old.get("enum", ())), set(new.get("enum", ()))
    if is_request and later and (values - later or not values):
        yield f"{what} takes fewer values"
    if not is_request and values and (later - values or not later):
        yield f"{what} has more values"
    properties = new.get("properties", {})
    for name, schema in old.get("properties", {}).items():
        if name not in properties:
            yield f"{what}.{name} is gone"
            continue
        pair = schema, properties[name]
        yield from _schemas(before, after, *pair, f"{what}.{name}", seen, is_request=is_request)
    needed, needed_later = set(old.get("required", ())), set(new.get("required", ()))
    for name in needed_later - needed if is_request else needed - needed_later:
        yield f"{what}.{name} is {'' if is_request else 'not '}required"
    for part in ("items", "additionalProperties"):
        if isinstance(old.get(part), dict):
            pair = old[part], new.get(part, {})
            yield from _schemas(before, after, *pair, f"{what}[]", seen, is_request=is_request)


def _whole(document: Node, node: Node) -> Node:
    """Returns a schema with its parts (`allOf`) in it."""
    found = dict(_resolved(document, node))
    for part in found.pop("allOf", ()):
        more = _whole(document, part)
        found.setdefault("type", more.get("type"))
        found["properties"] = {**more.get("properties", {}), **found.get("properties", {})}
        found["required"] = [*more.get("required", ()), *found.get("required", ())]
    return found


def _resolved(document: Node, node: Node) -> Node:
    while "$ref" in node:
        found = document
        for step in node["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        node = found
    return node


def text_of(document: Node) -> str:
    """Returns a document as it is stored: one line for each path and component."""
    lines = []
    for name, value in document.items():
        if name not in ("paths", "components"):
            lines.append(f'"{name}":{_json(value)}')
            continue
        parts = value if name == "components" else {"": value}
        inner = [
            (f'"{kind}":' if kind else "")
            + "{\n"
            + ",\n".join(f"{_json(key)}:{_json(each)}" for key, each in of.items())
            + "\n}"
            for kind, of in parts.items()
        ]
        whole = "{" + ",\n".join(inner) + "}" if name == "components" else inner[0]
        lines.append(f'"{name}":{whole}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def main() -> None:
    """Writes the interface."""
    document = published()
    if STORED.exists() and sys.argv[1:] != ["--break"]:
        found = breaks(json.loads(STORED.read_text()), document)
        if found:
            sys.exit("clients of the stored interface would break:\n" + "\n".join(found))
    STORED.write_text(text_of(document))


if __name__ == "__main__":
    main()
