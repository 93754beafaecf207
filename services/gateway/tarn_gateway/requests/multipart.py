"""The form of PostObject, with the errors of S3; `tarn.objects.forms` reads it."""

from __future__ import annotations

from tarn.objects import forms
from tarn.objects.forms import FIELDS_MAX, FORM_BYTES_MAX, FormProblem
from tarn_gateway.http import Headers
from tarn_gateway.s3error import S3Error

__all__ = ["FIELDS_MAX", "FORM_BYTES_MAX", "FormParser", "boundary_of", "is_form"]


def is_form(headers: Headers) -> bool:
    """Whether the body of a request is a form, by its Content-Type."""
    return forms.is_form(headers.text("content-type"))


def boundary_of(headers: Headers) -> bytes:
    """Returns the boundary of a form.

    Raises:
        S3Error: MalformedPOSTRequest.
    """
    boundary = forms.boundary_of(headers.text("content-type"))
    if boundary is None:
        text = "In the form, the Content-Type has no boundary of 1 to 70 characters."
        raise S3Error("MalformedPOSTRequest", text)
    return boundary


class FormParser(forms.FormParser):
    """Parses one form.

    Its methods raise S3Error: MalformedPOSTRequest; MaxPostPreDataLengthExceededError; InvalidArgument for a repeated
    field, no file or two.
    """

    def refused(self, problem: FormProblem, text: str) -> Exception:
        """See `tarn.objects.forms.FormParser.refused`."""
        match problem:
            case FormProblem.MALFORMED:
                return S3Error("MalformedPOSTRequest", text)
            case FormProblem.FIELDS_TOO_LONG:
                return S3Error(
                    "MaxPostPreDataLengthExceededError",
                    MaxPostPreDataLengthBytes=str(FORM_BYTES_MAX),
                )
            case FormProblem.FIELD_REPEATED:
                name = text[:80]
                said = f"POST requires exactly one field {name!r} per request."
                return S3Error("InvalidArgument", said, ArgumentName=name)
            case FormProblem.NO_FILE | FormProblem.TWO_FILES:
                count = "0" if problem is FormProblem.NO_FILE else "2"
                said = "POST requires exactly one file upload per request."
                return S3Error("InvalidArgument", said, ArgumentName="file", ArgumentValue=count)
