"""The OpenAPI document of Tarn's own interface, made from the protos: paths, and a schema for each message."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from tarn_api.rpcs import JSON, RPCS

__all__ = ["rpc_document"]

Schema = dict[str, Any]

_WELL_KNOWN: Final[dict[str, Schema]] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": "^-?[0-9]+(\\.[0-9]+)?s$"},
    "google.protobuf.Empty": {"type": "object"},
}
_NUMBERS: Final[dict[int, Schema]] = {
    FieldDescriptor.CPPTYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.CPPTYPE_UINT32: {"type": "integer", "minimum": 0},
    FieldDescriptor.CPPTYPE_INT64: {"type": "string", "format": "int64"},
    FieldDescriptor.CPPTYPE_UINT64: {"type": "string", "format": "uint64"},
    FieldDescriptor.CPPTYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptor.CPPTYPE_FLOAT: {"type": "number", "format": "float"},
    FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
}


@cache
def rpc_document() -> bytes:
    """Returns the document as JSON."""
    schemas: dict[str, Schema] = {
        "Error": {
            "type": "object",
            "required": ["code", "message", "reason"],
            "properties": {name: {"type": "string"} for name in ("code", "message", "reason")},
        }
    }
    paths: dict[str, Schema] = {}
    for path, rpc in RPCS.items():
        method = rpc.service.methods_by_name[rpc.method.name]
        request, answer = (
            _message(method.input_type, schemas),
            _message(method.output_type, schemas),
        )
        paths[f"/{path}"] = {
            "post": {
                "operationId": rpc.rule.name,
                "tags": [rpc.service.name],
                "requestBody": {"required": True, "content": {JSON: {"schema": request}}},
                "responses": {
                    "200": {"description": "OK", "content": {JSON: {"schema": answer}}},
                    "default": {
                        "description": "Error",
                        "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
                    },
                },
            }
        }
    document = {
        "openapi": "3.0.3",
        "info": {"title": "Tarn", "version": "v1"},
        "servers": [{"url": "/api/tarn/v1"}],
        "security": [{"basic": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _message(message: Descriptor, schemas: dict[str, Schema]) -> Schema:
    """Returns a reference to the schema of a message, which is added with those of the messages in it."""
    name = message.full_name
    if name in _WELL_KNOWN:
        return _WELL_KNOWN[name]
    if name not in schemas:
        properties: dict[str, Schema] = {}
        schemas[name] = {"type": "object", "properties": properties}
        properties |= {each.json_name: _field(each, schemas) for each in message.fields}
    return {"$ref": f"#/components/schemas/{name}"}


def _field(field: FieldDescriptor, schemas: dict[str, Schema]) -> Schema:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return {
            "type": "object",
            "additionalProperties": _value(kind.fields_by_name["value"], schemas),
        }
    value = _value(field, schemas)
    return {"type": "array", "items": value} if field.is_repeated else value


def _value(field: FieldDescriptor, schemas: dict[str, Schema]) -> Schema:
    if field.message_type is not None:
        return _message(field.message_type, schemas)
    if field.enum_type is not None:
        return _enum(field.enum_type)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return {"type": "string", "format": "byte"}
    return _NUMBERS.get(field.cpp_type, {"type": "string"})


def _enum(values: EnumDescriptor) -> Schema:
    return {"type": "string", "enum": [each.name for each in values.values]}
