"""Options of commands that are put together when their modules load.

typer reads the options of a command from the signature and the annotations of its function. `set_options` gives a
function that takes any keywords the options of a list.
"""

import inspect
from collections.abc import Callable, Iterable


def set_options(run: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> None:
    """Set the options that typer reads of `run`, which is called with them as keywords."""
    options = [its.replace(kind=inspect.Parameter.KEYWORD_ONLY) for its in parameters]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {its.name: its.annotation for its in options}
