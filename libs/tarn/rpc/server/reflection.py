"""The answers of reflection: the files of the services, and `google.rpc.ErrorInfo`, so that tools show errors in
full."""

from __future__ import annotations

from typing import cast

from google.protobuf import any_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tarn_proto.common.v1 import status_pb2

__all__ = ["reflected_files"]

_OURS = "tarn.common.v1"
_GOOGLE = "google.rpc"


class _ReflectedFiles:
    """The descriptors of this process, and those of `google.rpc` that errors carry.

    The latter have a pool of their own: in the pool of the process they would collide with Google's package.
    """

    def __init__(self) -> None:
        self._default = descriptor_pool.Default()
        self._google = descriptor_pool.DescriptorPool()
        self._google.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
        self._google.AddSerializedFile(_google_status().SerializeToString())

    def __getattr__(self, name: str) -> object:
        return getattr(self._default, name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802 - protobuf's name
        """Returns the file that defines a message, a service or a method.

        Raises:
            KeyError: there is none.
        """
        if symbol.startswith(f"{_GOOGLE}."):
            return self._google.FindFileContainingSymbol(symbol)
        try:
            return self._default.FindFileContainingSymbol(symbol)
        except KeyError:
            # Protobuf finds services, but not their methods.
            service, _, method = symbol.rpartition(".")
            if method not in self._default.FindServiceByName(service).methods_by_name:
                raise
            return self._default.FindFileContainingSymbol(service)


def reflected_files() -> descriptor_pool.DescriptorPool:
    """Returns the files in the type that reflection declares; it calls only methods that they have."""
    return cast("descriptor_pool.DescriptorPool", _ReflectedFiles())


def _google_status() -> FileDescriptorProto:
    """Returns our copy of the messages under the names that they have on the wire."""
    file = FileDescriptorProto.FromString(status_pb2.DESCRIPTOR.serialized_pb)
    file.name, file.package = "google/rpc/error_details.proto", _GOOGLE
    for message in file.message_type:
        for field in (each for each in message.field if each.type_name):
            field.type_name = field.type_name.replace(f".{_OURS}.", f".{_GOOGLE}.")
    return file
