"""Forms that pages send, `application/x-www-form-urlencoded`: short texts, within bounds."""

from __future__ import annotations

from typing import Final, Self
from urllib.parse import parse_qsl

from tarn_api.errors import ApiError

__all__ = ["FORM_BYTES_MAX", "Form"]

FORM_BYTES_MAX: Final = 64 * 1024
_FIELDS_MAX: Final = 50


class Form(dict[str, str]):
    """The fields of a form, of one that is repeated the first. As the type of an operation's body, it says that the
    body is such a form."""

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Returns the fields of a body.

        Raises:
            ApiError: 400.
        """
        try:
            fields = parse_qsl(
                body.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_FIELDS_MAX,
            )
        except ValueError as error:
            text = f"the form has more than {_FIELDS_MAX} fields, or is not UTF-8"
            raise ApiError(400, text, reason="MALFORMED") from error
        return cls(reversed(fields))

    def need(self, name: str, what: str) -> str:
        """Returns a field without the spaces around it.

        Args:
            name: of the field.
            what: what it is, for people.

        Raises:
            ApiError: 400: it is missing or empty.
        """
        value = self.get(name, "").strip()
        if not value:
            raise ApiError(400, f"{what} is missing", reason="INVALID_ARGUMENT")
        return value
