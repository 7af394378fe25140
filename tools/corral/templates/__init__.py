"""The jinja2 templates of everything that is text and not HCL."""

from __future__ import annotations

from typing import Any

import jinja2


def render(template: str, **values: Any) -> str:
    """The text of *template*, a file of this folder, with *values* filled in.

    Raises:
        jinja2.UndefinedError: the template names a value that is not given.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("corral"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  Markdown and YAML, not HTML
    )
    return environment.get_template(template).render(**values).rstrip("\n") + "\n"
