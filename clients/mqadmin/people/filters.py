"""Options that select a part of a list: the brokers of a cluster, or names with a text."""

from typing import Annotated

import typer

ClusterOption = Annotated[
    str | None, typer.Option("-c", "--cluster", metavar="NAME", help="Only brokers of this cluster.")
]
NameFilter = Annotated[str, typer.Option("--filter", metavar="TEXT", help="Only names with this text, in any case.")]


def name_matches(name: str, text: str) -> bool:
    """Return whether a name contains a text, regardless of case; an empty text is in every name."""
    return text.lower() in name.lower()
