"""docs/run/mqadmin.md agrees with the code: the commands for people, and the fields of what they print as JSON.

`python -m tests.test_mqadmin_document` writes the tables of fields.
"""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from skylarkmq.clients.mqadmin import people
from skylarkmq.clients.mqadmin.app.cli import GROUPS
from skylarkmq.clients.mqadmin.people.output import Result
from skylarkmq.clients.terminal.printed_output import Summary, fields_table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "run" / "mqadmin.md"
MODULES = [import_module(f"{people.__name__}.{module.name}") for module in iter_modules(people.__path__)]
STRUCTS = {
    name: kind
    for module in MODULES
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Summary) and kind not in {Summary, Result}
}
TABLE = re.compile(r"<!-- fields: (\w+) -->\n\n((?:\|.*\n)*)\n")


def test_every_field_of_the_json_is_documented() -> None:
    """The page has the table of each struct, once, as `fields_table` makes it."""
    documented = TABLE.findall(PAGE.read_text())
    assert sorted(documented) == sorted((name, fields_table(kind)) for name, kind in STRUCTS.items())


def test_every_command_for_people_is_documented() -> None:
    """In the table of the page, with the name of its group."""
    text = PAGE.read_text()
    commands = [f"{group} {command.name}" for group, (_, found) in GROUPS.items() for command in found.registered]
    assert [command for command in commands if not re.search(rf"^\|.*\b{command}\b.*\|", text, re.MULTILINE)] == []


def test_every_command_for_people_has_an_example() -> None:
    """Which begins with its name."""
    for group, (_, found) in GROUPS.items():
        for command in found.registered:
            assert command.examples
            assert all(line.startswith(f"mqadmin {group} {command.name}") for line in command.examples)


if __name__ == "__main__":
    PAGE.write_text(
        TABLE.sub(lambda found: f"<!-- fields: {found[1]} -->\n\n{fields_table(STRUCTS[found[1]])}\n", PAGE.read_text())
    )
