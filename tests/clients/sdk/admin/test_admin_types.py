"""`skylarkmq.admin_types` has every type that a caller of Admin sees."""

import inspect
import typing
from collections.abc import Iterator
from functools import cached_property

import msgspec

import skylarkmq.clients.sdk
from skylarkmq import Admin, admin_types


def test_every_type_that_admin_takes_or_returns_is_exported() -> None:
    """Also those of its sections, and of the members of the types."""
    found: dict[str, type] = {}
    unread = [own for hint in hints(Admin) for own in types_in(hint)]
    while unread:
        kind = unread.pop()
        if kind.__name__ not in found:
            found[kind.__name__] = kind
            members = msgspec.structs.fields(kind) if issubclass(kind, msgspec.Struct) else ()
            unread += [own for member in members for own in types_in(member.type)]
    assert set(found) - set(skylarkmq.clients.sdk.__all__) == set(admin_types.__all__)
    assert all(getattr(admin_types, name) is found[name] for name in admin_types.__all__)


def hints(owner: type) -> Iterator[object]:
    """Yield the types of parameters and results of the public methods of a class and of its sections."""
    for name, member in vars(owner).items():
        if isinstance(member, cached_property):
            section = typing.get_type_hints(member.func)["return"]
            yield section
            yield from hints(section)
        elif inspect.isfunction(member) and not name.startswith("_"):
            yield from typing.get_type_hints(member).values()


def types_in(hint: object) -> Iterator[type]:
    """Yield the types of this project in a type hint."""
    for argument in typing.get_args(hint):
        yield from types_in(argument)
    kind = typing.get_origin(hint) or hint
    if inspect.isclass(kind) and kind.__module__.startswith("skylarkmq"):
        yield kind
