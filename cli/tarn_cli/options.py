"""Code that options of several commands share."""

from __future__ import annotations

import click
from click.core import ParameterSource

__all__ = ["not_empty"]


def not_empty(context: click.Context, option: click.Parameter, value: str) -> str:
    """Callback of an option that protects from a mistake: a variable of a script that is not set must not turn it off.

    Raises:
        click.BadParameter: the option is given with an empty value.
    """
    given = context.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT
    if given and not value:
        raise click.BadParameter("it is empty; leave out the option, or give it a value")
    return value
