"""Arguments as RocketMQ's tool accepts them, rewritten to those that typer accepts.

    -t=Orders    -topic Orders    --top Orders    ->    -t Orders    --topic Orders    --topic Orders

The tool takes a value after `=` also for short options, long names after one dash, and the beginning of a long name if
it is unique.
"""

from collections.abc import Iterator, Mapping, Sequence


def standard_arguments(arguments: Sequence[str], takes_value: Mapping[str, bool]) -> Iterator[str]:
    """Yield the arguments with standard options. `takes_value`: whether an option, such as `-t`, has a value."""
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            yield argument
            yield from remaining
            return
        given, equals, value = argument.partition("=")
        option = _option_of(given, takes_value) if argument.startswith("-") else None
        if option is None:
            yield argument
            continue
        yield option
        if equals:
            yield value
        elif takes_value[option]:
            yield from _first(remaining)


def _option_of(given: str, takes_value: Mapping[str, bool]) -> str | None:
    """Return the option that is meant; None if it is unknown, or the beginning of several."""
    if given in takes_value:
        return given
    long = f"--{given.lstrip('-')}"
    if long in takes_value:
        return long
    # `-topicOrders` could also be `-t opicOrders`: after one dash only whole long names are recognized
    found = [option for option in takes_value if option.startswith(long)] if given.startswith("--") else []
    return found[0] if len(found) == 1 else None


def _first(remaining: Iterator[str]) -> Iterator[str]:
    for argument in remaining:
        yield argument
        return
