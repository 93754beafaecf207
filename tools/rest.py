"""The REST interface of lakeFS, and Tarn's own: reduces its document to facts, and generates Python from that.

    tools/rest.py reduce FILE          the OpenAPI document of a release, as protos/tarn_rest/lakefs.yaml has it
    tools/rest.py generate FOLDER      FOLDER/tarn_rest/: a struct for each schema and for the parameters of each
                                       operation, and the table of all operations (`tools/proto` calls it)

Only names, types and limits are kept: no description, summary, title or example. Two texts that OpenAPI demands are
replaced (`info.title`, and the descriptions of answers, which are empty).
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = {
    "OPERATIONS": ROOT / "protos" / "tarn_rest" / "lakefs.yaml",
    "OWN_OPERATIONS": ROOT / "protos" / "tarn_rest" / "tarn.yaml",
}
"""By the name of the tuple of their operations. No two schemas or operations have one name."""

TEXTS: Final = frozenset({"description", "summary", "title", "example", "examples"})
NAMED: Final = frozenset({"properties", "schemas", "parameters", "responses", "headers", "paths"})
"""Maps whose keys are names, which may be those of `TEXTS`."""

METHODS: Final = ("get", "head", "post", "put", "patch", "delete")
_RANGES: Final = r"^bytes=((\d*-\d*,? ?)+)$"
"""Takes exponential time, so no struct has it: handlers check what they take."""

Node = dict[str, Any]


def reduced(node: Any, *, is_named: bool = False) -> Any:  # noqa: ANN401 - YAML
    """Returns a part of a document without its texts."""
    if isinstance(node, dict):
        kept = {name: value for name, value in node.items() if is_named or name not in TEXTS}
        return {
            name: reduced(value, is_named=name in NAMED and not is_named)
            for name, value in kept.items()
        }
    if isinstance(node, list):
        return [reduced(each) for each in node]
    return node


def reduced_document(document: Node) -> Node:
    """Returns a document without its texts."""
    found: Node = reduced({"openapi": document["openapi"], "paths": document["paths"]})
    parts = document["components"]
    components = {
        name: reduced(parts[name], is_named=True) for name in ("parameters", "responses", "schemas")
    }
    components["securitySchemes"] = reduced(parts["securitySchemes"])
    for responses in (
        components["responses"],
        *(operation["responses"] for _, _, operation in operations_of(found)),
    ):
        for response in responses.values():
            if "$ref" not in response:
                response["description"] = ""
    return {
        "openapi": found["openapi"],
        "info": {"title": "lakeFS API", "version": document["info"]["version"]},
        "servers": [{"url": each["url"]} for each in document["servers"]],
        "security": document["security"],
        "paths": found["paths"],
        "components": components,
    }


def operations_of(document: Node) -> Iterator[tuple[str, str, Node]]:
    """Yields path, method and operation in the order of the document."""
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def class_name(text: str) -> str:
    """Returns the name of a class: `listBranches` is `ListBranches`."""
    return text[:1].upper() + text[1:]


def field_name(text: str) -> str:
    """Returns the name of a field: `userId` and `If-None-Match` are `user_id` and `if_none_match`."""
    words = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", text).replace("-", "_").lower()
    return f"{words}_" if keyword.iskeyword(words) else words


class Types:
    """Writes the types of schemas.

    Args:
        document: resolves references.
        prefix: precedes the names of schemas.
    """

    def __init__(self, document: Node, prefix: str = "") -> None:
        self._document = document
        self._prefix = prefix

    def resolved(self, node: Node) -> Node:
        """Returns what a reference names."""
        while "$ref" in node:
            found = self._document
            for step in node["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            node = found
        return node

    def of(self, schema: Node) -> str:  # noqa: PLR0911 - one for each type
        """Returns the annotation of a schema."""
        if "$ref" in schema:
            return self._prefix + class_name(schema["$ref"].rpartition("/")[2])
        if "enum" in schema:
            return f"Literal[{', '.join(repr(each) for each in schema['enum'])}]"
        match schema.get("type"):
            case "boolean":
                return "bool"
            case "integer":
                # What rpcs can carry; the document leaves it open.
                bits = 63 if schema.get("format") == "int64" else 31
                limits = {"minimum": -(2**bits), "maximum": 2**bits - 1, **schema}
                return self._limited("int", limits, minimum="ge", maximum="le")
            case "array":
                item = self.of(schema["items"])
                return self._limited(f"list[{item}]", schema, minItems="min_length")
            case "string" if schema.get("format") == "date-time":
                return "datetime"
            case "string" if schema.get("format") == "binary":
                return "bytes"
            case "string" if schema.get("pattern") == _RANGES:
                return "str"
            case "string":
                return self._limited("str", schema, minLength="min_length", pattern="pattern")
            case "object" if "additionalProperties" in schema:
                return f"dict[str, {self.of(schema['additionalProperties'])}]"
            case "object" if "properties" not in schema:
                return "dict[str, object]"
        raise SystemExit(f"no type for {schema}")

    @staticmethod
    def _limited(of: str, schema: Node, **names: str) -> str:
        limits = [f"{name}={schema[key]!r}" for key, name in names.items() if key in schema]
        return f"Annotated[{of}, Meta({', '.join(limits)})]" if limits else of

    def fields_of(self, schema: Node) -> tuple[dict[str, Node], set[str]]:
        """Returns the properties of an object, and the names of those that it must have."""
        schema = self.resolved(schema)
        properties: dict[str, Node] = dict(schema.get("properties", {}))
        required = set(schema.get("required", ()))
        for part in schema.get("allOf", ()):
            more, needed = self.fields_of(part)
            properties |= more
            required |= needed
        return properties, required


def field(name: str, annotation: str, *, is_required: bool, default: object = None) -> str:
    """Returns the line of a field. What is absent has its default, or is None."""
    python = field_name(name)
    given = [f"name={name!r}"] if python != name else []
    if not is_required:
        if default is None:
            annotation += " | None"
        given.append(f"default={default!r}")
    if len(given) == 1 and given[0].startswith("default="):
        return f"    {python}: {annotation} = {default!r}"
    return f"    {python}: {annotation}" + (f" = field({', '.join(given)})" if given else "")


def schemas(documents: Iterable[Node]) -> str:
    """Returns the module of schemas."""
    lines = [
        '"""Requests and answers of the REST interface; generated by tools/rest.py."""',
        "",
        "from __future__ import annotations",
        "",
        "from datetime import datetime",
        "from typing import Annotated, Literal, TypeAlias",
        "",
        "from msgspec import Meta, Struct, field",
    ]
    aliases = []
    for types, name, schema in (
        (Types(document), name, schema)
        for document in documents
        for name, schema in document["components"]["schemas"].items()
    ):
        if "properties" not in schema and "allOf" not in schema:
            aliases.append(f"{class_name(name)}: TypeAlias = {types.of(schema)}")
            continue
        properties, required = types.fields_of(schema)
        lines += ["", "", f"class {class_name(name)}(Struct, kw_only=True, omit_defaults=True):"]
        lines += [
            # A default of the document is what a server assumes: None says that a client left it out.
            field(each, types.of(of), is_required=each in required)
            for each, of in properties.items()
        ] or ["    pass"]
    # Annotations are read late, but aliases at once: they name structs.
    return "\n".join([*lines, "", "", *aliases]) + "\n"


_TABLE: Final = '''

@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the document.

    Attributes:
        id: its `operationId`.
        method: of HTTP, upper case.
        path: with the names of its parameters in braces.
        status: of its success, the lowest if there are several.
        parameters: the struct of its parameters.
        headers: lower-case names of the parameters that are headers.
        lists: names of the parameters that may be repeated.
        body: type of the JSON in its body; None: it has no such body.
        is_body_required: whether it must have it.
        is_raw: whether its body is bytes, or a form.
        answer: type of the JSON in its answer; `str` or `bytes` for another content, None for none.
        is_public: whether the document asks for no credentials.
    """

    id: str
    method: str
    path: str
    status: int
    parameters: type[Struct]
    headers: frozenset[str]
    lists: frozenset[str]
    body: object
    is_body_required: bool
    is_raw: bool
    answer: object
    is_public: bool
'''


def operations(documents: Mapping[str, Node]) -> str:
    """Returns the module of operations.

    Args:
        documents: by the name of the tuple of their operations.
    """
    lines = [
        '"""Operations of the REST interface; generated by tools/rest.py."""',
        "",
        "from __future__ import annotations",
        "",
        "from dataclasses import dataclass",
        "from datetime import datetime",
        "from typing import Annotated, Final, Literal",
        "",
        "from msgspec import Meta, Struct, field",
        "",
        "from tarn_rest import schemas",
        *_TABLE.splitlines(),
    ]
    rows: dict[str, list[str]] = {name: [] for name in documents}
    for tuple_name, types, path, method, operation in (
        (tuple_name, Types(document, "schemas."), *found)
        for tuple_name, document in documents.items()
        for found in operations_of(document)
    ):
        document = documents[tuple_name]
        name = class_name(operation["operationId"])
        shared = [types.resolved(each) for each in document["paths"][path].get("parameters", [])]
        own = [types.resolved(each) for each in operation.get("parameters", [])]
        parameters = {(each["name"], each["in"]): each for each in (*shared, *own)}.values()
        lines += ["", "", f"class {name}(Struct, kw_only=True):"]
        lines += [
            field(
                each["name"].lower() if each["in"] == "header" else each["name"],
                # Not its pattern: parameters are checked by their handlers.
                types.of({k: v for k, v in each["schema"].items() if k != "pattern"}),
                is_required=each["in"] == "path" or each.get("required", False),
                default=each["schema"].get("default"),
            )
            for each in parameters
        ] or ["    pass"]
        rows[tuple_name].append(_row(types, path, method, operation, parameters))
    for tuple_name, of_document in rows.items():
        lines += ["", "", f"{tuple_name}: Final = (", *of_document, ")"]
    return "\n".join(lines) + "\n"


def _row(types: Types, path: str, method: str, operation: Node, parameters: Iterable[Node]) -> str:
    status = min(int(each) for each in operation["responses"] if str(each)[0] in "23")
    headers = sorted(each["name"].lower() for each in parameters if each["in"] == "header")
    lists = sorted(
        each["name"] for each in parameters if types.resolved(each["schema"]).get("type") == "array"
    )
    request = types.resolved(operation.get("requestBody", {}))
    contents = request.get("content", {})
    is_raw = bool(contents) and "application/json" not in contents
    body = "None"
    if contents and not is_raw:
        schema = contents["application/json"]["schema"]
        # The one inline object of the document.
        body = "dict[str, str]" if "properties" in schema else types.of(schema)
    answer = "None"
    content = types.resolved(operation["responses"][status]).get("content", {})
    for kind, of in content.items():
        answer = types.of(of["schema"]) if kind == "application/json" else "str"
        if kind == "application/octet-stream":
            answer = "bytes"
    values = (
        repr(operation["operationId"]),
        repr(method.upper()),
        repr(path),
        str(status),
        class_name(operation["operationId"]),
        f"frozenset({headers})",
        f"frozenset({lists})",
        body,
        str(request.get("required", False)),
        str(is_raw),
        answer,
        str(operation.get("security") == []),
    )
    return f"    Operation({', '.join(values)}),"


def main() -> None:
    """Runs a command."""
    match sys.argv[1:]:
        case ["reduce", file]:
            document = yaml.safe_load(Path(file).read_text())
            text = yaml.safe_dump(reduced_document(document), sort_keys=False, width=120)
            sys.stdout.write(f"# Written by tools/rest.py: names, types and limits only.\n{text}")
        case ["generate", folder]:
            documents = {name: yaml.safe_load(file.read_text()) for name, file in SOURCES.items()}
            target = Path(folder) / "tarn_rest"
            target.mkdir(parents=True, exist_ok=True)
            (target / "schemas.py").write_text(schemas(documents.values()))
            (target / "operations.py").write_text(operations(documents))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
