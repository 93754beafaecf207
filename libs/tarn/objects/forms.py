"""Splits a form (`multipart/form-data`, RFC 7578 and RFC 2046 section 5.1) into its fields and its file.

A front whose protocol has errors of its own makes a subclass with another `refused`.

The fields before the file are kept, within bounds; the bytes of the file are handed on as they arrive. The parser is
strict: what two parsers could read in two ways is refused. What follows the file is read for its end only, as in S3.
"""

from __future__ import annotations

import enum
import re
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["FIELDS_MAX", "FORM_BYTES_MAX", "FormParser", "FormProblem", "boundary_of", "is_form"]

FORM_BYTES_MAX: Final = 20 * 1024
"""S3's limit of everything before the bytes of the file; also of everything after them."""
FIELDS_MAX: Final = 100

_FORM: Final = "multipart/form-data"
_BOUNDARY: Final = re.compile(
    r""";\s*boundary=(?:"([0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?])"|"""
    r"""([0-9A-Za-z'+_\-.]{1,70}))\s*(?:;|$)""",
    re.ASCII | re.IGNORECASE,
)
_DISPOSITION: Final = re.compile(
    r"content-disposition[ \t]*:[ \t]*form-data[ \t]*(;.*)", re.IGNORECASE
)
# A quote in a value is `\"`, or, from browsers, `%22`. Another backslash is one: old browsers send paths.
_PARAMETER: Final = re.compile(
    r"""[ \t]*;[ \t]*([0-9A-Za-z*_-]+)=(?:"((?:[^"\\]|\\"|\\)*?)"|([^\s";,]+))(?=[ \t]*(?:;|$))"""
)
_TYPE: Final = re.compile(r"content-type[ \t]*:[ \t]*(.*?)[ \t]*", re.IGNORECASE)
_ENCODING: Final = re.compile(
    r"content-transfer-encoding[ \t]*:[ \t]*(?!7bit|8bit|binary)", re.IGNORECASE
)


def is_form(content_type: str) -> bool:
    """Whether a body is a form, by its Content-Type."""
    return content_type.partition(";")[0].strip().lower() == _FORM


def boundary_of(content_type: str) -> bytes | None:
    """Returns the boundary of a form, 1 to 70 bytes; None if the Content-Type has none."""
    found = _BOUNDARY.search(content_type)
    return None if found is None else (found[1] or found[2]).encode()


class FormProblem(enum.Enum):
    """Why a form is refused."""

    MALFORMED = "it cannot be read in one way"
    FIELDS_TOO_LONG = "there is too much before the file"
    FIELD_REPEATED = "a field occurs twice"
    NO_FILE = "it has no file"
    TWO_FILES = "it has two files"


class _State(enum.Enum):
    VALUE = "in the preamble, or in the value of a field, up to the next boundary"
    BOUNDARY = "behind a boundary, in its line"
    HEADERS = "in the headers of a part"
    FILE = "in the file"
    END = "behind the last boundary"


class FormParser:
    """Parses one form.

    Args:
        boundary: see `boundary_of`.
        file_field: name of the field that is the file, in lower case.

    Attributes:
        fields: values by name in lower case, of the fields before the file.
        filename: of the file; None if the client sent none.
        file_type: Content-Type of the file; empty if the client sent none.
        in_file: whether the bytes of the file have begun.
    """

    def __init__(self, boundary: bytes, file_field: str = "file") -> None:
        self._file_field = file_field
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        self.file_type = ""
        self.in_file = False
        self._delimiter = b"\r\n--" + boundary
        # The first boundary begins a line, but no line end precedes it.
        self._buffer = bytearray(b"\r\n")
        self._searched = 0
        self._used = -2
        self._state = _State.VALUE
        self._name: str | None = None  # None: the preamble

    def feed(self, piece: bytes | memoryview) -> bytes | bytearray:
        """Takes the next bytes of the body; returns bytes of the file, if there are some among them.

        Raises:
            Exception: what `refused` returns.
        """
        self._buffer += piece
        if self._is(_State.FILE):
            return self._file()
        while not self._is(_State.FILE, _State.END) and self._step():
            if self._used > FORM_BYTES_MAX:
                raise self._too_long()
        if self._is(_State.END):
            if not self.in_file:
                raise self._file_count(0)
            self._used += len(self._buffer)
            self._buffer.clear()
        elif self._is(_State.FILE):
            self._used, self._searched = 0, 0
            return self._file()
        if self._used + len(self._buffer) > FORM_BYTES_MAX:
            raise self._too_long()
        return b""

    def finish(self) -> None:
        """Checks, after all of the body, that the form is complete.

        Raises:
            Exception: what `refused` returns; it ends early.
        """
        if self._state is not _State.END:
            raise self._malformed("it ends before its last boundary")

    def refused(self, problem: FormProblem, text: str) -> Exception:
        """Returns the error to be raised.

        Args:
            problem: what is wrong.
            text: a sentence about it; of a repeated field, its name.
        """
        if problem is FormProblem.FIELD_REPEATED:
            text = f"The field {text[:80]!r} occurs twice in the form."
        return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, f"{text} Nothing was stored.")

    def _malformed(self, detail: str) -> Exception:
        return self.refused(FormProblem.MALFORMED, f"In the form, {detail}.")

    def _is(self, *states: _State) -> bool:
        return self._state in states

    def _too_long(self) -> Exception:
        if self.in_file:
            return self._malformed(f"more than {FORM_BYTES_MAX} bytes follow the file")
        text = f"More than {FORM_BYTES_MAX} bytes precede the file of the form."
        return self.refused(FormProblem.FIELDS_TOO_LONG, text)

    def _step(self) -> bool:
        """Takes the next element out of the buffer; returns whether it was complete."""
        match self._state:
            case _State.VALUE:
                value = self._take_until(self._delimiter)
                if value is None:
                    return False
                self._end_field(value)
                self._state = _State.BOUNDARY
            case _State.BOUNDARY:
                if self._buffer.startswith(b"--"):
                    self._state = _State.END
                    return True
                padding = self._take_until(b"\r\n")
                if padding is None:
                    return False
                if padding.strip(b" \t"):
                    raise self._malformed("a line begins with the boundary and goes on")
                self._state = _State.HEADERS
            case _:
                headers = self._take_until(b"\r\n\r\n")
                if headers is None:
                    return False
                self._begin_part(headers)
        return True

    def _take_until(self, end: bytes) -> bytes | None:
        at = self._buffer.find(end, max(0, self._searched - len(end) + 1))
        if at < 0:
            self._searched = len(self._buffer)
            return None
        found = bytes(self._buffer[:at])
        del self._buffer[: at + len(end)]
        self._used += at + len(end)
        self._searched = 0
        return found

    def _end_field(self, value: bytes) -> None:
        if self._name is None or self.in_file:
            return
        if self._name in self.fields:
            raise self.refused(FormProblem.FIELD_REPEATED, self._name)
        if len(self.fields) == FIELDS_MAX:
            raise self._malformed(f"there are more than {FIELDS_MAX} fields")
        self.fields[self._name] = self._text(value)

    def _begin_part(self, raw: bytes) -> None:
        if raw.startswith(b"\r\n"):
            raise self._malformed("a part has no headers")
        parameters: dict[str, str] | None = None
        kind = ""
        for line in self._text(raw).split("\r\n"):
            if found := _DISPOSITION.fullmatch(line):
                if parameters is not None:
                    raise self._malformed("a part has two Content-Dispositions")
                parameters = self._parameters(found[1])
            elif found := _TYPE.fullmatch(line):
                kind = found[1]
            elif _ENCODING.match(line):
                raise self._malformed("a Content-Transfer-Encoding is not used in forms")
        if parameters is None or not parameters.get("name"):
            raise self._malformed("a part has no Content-Disposition: form-data with a name")
        self._name = parameters["name"].lower()
        self._state = _State.VALUE
        if self._name == self._file_field:
            if self.in_file:
                raise self._file_count(2)
            self._state = _State.FILE
            self.in_file = True
            self.filename = parameters.get("filename")
            self.file_type = kind

    def _file(self) -> bytes | bytearray:
        """Takes bytes of the file out of the buffer; what may be the beginning of a boundary stays in it."""
        buffer, delimiter = self._buffer, self._delimiter
        at = buffer.find(delimiter)
        if at < 0:
            kept = len(delimiter) - 1
            if len(buffer) <= kept:
                return b""
            self._buffer = buffer[-kept:]
            del buffer[-kept:]
            return buffer
        self._buffer = buffer[at + len(delimiter) :]
        self._state = _State.BOUNDARY
        self._name = None
        self.feed(b"")
        del buffer[at:]
        return buffer

    def _file_count(self, count: int) -> Exception:
        problem = FormProblem.TWO_FILES if count else FormProblem.NO_FILE
        text = f"The form has {count or 'no'} fields {self._file_field!r} instead of one."
        return self.refused(problem, text)

    def _text(self, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise self._malformed("a field is not UTF-8") from None

    def _parameters(self, text: str) -> dict[str, str]:
        found: dict[str, str] = {}
        end = 0
        while end < len(text):
            match = _PARAMETER.match(text, end)
            if match is None or match[1].lower() in found:
                raise self._malformed("the parameters of a Content-Disposition cannot be read")
            quoted, plain = match[2], match[3]
            value = plain if quoted is None else quoted.replace('\\"', '"')
            found[match[1].lower()] = value
            end = match.end()
            if not text[end:].strip(" \t"):
                break
        return found
