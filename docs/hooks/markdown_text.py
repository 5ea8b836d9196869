"""Plain text as Markdown."""

import re


def escaped(text: str) -> str:
    """Return a text on one line that Markdown shows as it is, except `code`; also in a cell of a table."""
    parts = re.split(r"(`[^`]*`)", re.sub(r"\s+", " ", text))
    return "".join(
        part if part.startswith("`") else re.sub(r"([<*_\[\]|])", r"\\\1", part).replace("\\<", "&lt;")
        for part in parts
    )
