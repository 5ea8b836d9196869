"""The pages of the commands: every command of `[project.scripts]` in pyproject.toml, with its options and subcommands.

The texts are those of `--help`. A command is found through the function of its script in `skylarkmq.commands`, which
names the module; the module has one Typer for the program.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import typer

from docs.hooks.markdown_text import escaped

ROOT: Final = Path(__file__).resolve().parents[2]
HIDDEN: Final = frozenset(("--help", "--install-completion", "--show-completion"))
PIPE, ESCAPED_PIPE = "|", "\\|"  # in a cell of a table, also inside code
TEXT: Final = """# Commands

*This page is generated from the code.*

| Command | Purpose | Installed by |
|---|---|---|
"""


def pages() -> dict[str, str]:
    """Return the overview and the page of each command by file name."""
    found = {f"{name}.md": command_page(name, command) for name, (command, _) in commands().items()}
    rows = (
        f"| [`{name}`]({name}.md) | {first_sentence(command)} | `skylarkmq[{extra}]` |"
        for name, (command, extra) in commands().items()
    )
    return {"index.md": TEXT + "\n".join(rows) + "\n"} | found


@cache
def commands() -> dict[str, tuple[Any, str]]:
    """Return the click command of each program, and the extra that installs it."""
    places = dict(places_of_functions())
    return {script: (typer_of(places[name][0], script), places[name][1]) for script, name in scripts().items()}


def scripts() -> dict[str, str]:
    """Return the function of `skylarkmq.commands` of each program."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {script: target.rpartition(":")[2] for script, target in project["scripts"].items()}


def places_of_functions() -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each function of `skylarkmq.commands` that starts a program, with its module and extra."""
    tree = ast.parse((ROOT / "src/skylarkmq/commands.py").read_text())
    for function in tree.body:
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "_command":
                texts = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
                if isinstance(function, ast.FunctionDef) and len(texts) == 3:
                    yield function.name, (str(texts[0]), str(texts[2]))


def typer_of(module: str, script: str) -> Any:
    """Return the click command of a program: the module's Typer with the name of the script, or its only one."""
    found = {name: one for name, one in vars(import_module(module)).items() if isinstance(one, typer.Typer)}
    wanted = script.replace("-", "_")
    only = next(iter(found.values()))
    return typer.main.get_command(found.get(wanted, found.get(wanted.rpartition("_")[2], only)))


def command_page(name: str, command: Any) -> str:
    """Return the page of a program."""
    return "\n".join((f"# {name}\n\n*This page is generated from the code.*\n", *command_sections(name, command, 1)))


def command_sections(path: str, command: Any, level: int) -> Iterator[str]:
    """Yield the text, the arguments and the options of a command and of its subcommands."""
    if level > 1:
        yield f"{'#' * min(level, 4)} {path}\n"
    yield from help_text(command.help or "")
    context = typer.Context(command, info_name=path)
    yield f"```text\n{command.get_usage(context).strip()}\n```\n"
    yield from parameters(command, context)
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from command_sections(f"{path} {name}", found, level + 1)


def help_text(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; those after "Examples:" are one block of code."""
    description, _, examples = text.replace("\b", "").partition("Examples:")
    for paragraph in re.split(r"\n\s*\n", description.strip()):
        if paragraph:
            yield escaped(paragraph) + "\n"
    lines = [line.strip() for line in examples.replace("\\n", "").splitlines() if line.strip()]
    if lines:
        yield "```text\n" + "\n".join(lines) + "\n```\n"


def parameters(command: Any, context: Any) -> Iterator[str]:
    """Yield a table of arguments and options, as `--help` describes them."""
    records = [one.get_help_record(context) for one in command.params if not set(one.opts) & HIDDEN]
    rows = [f"| `{names.replace(PIPE, ESCAPED_PIPE)}` | {escaped(text)} |" for names, text in filter(None, records)]
    if rows:
        yield "| Option | Meaning |\n|---|---|"
        yield "\n".join(rows) + "\n"


def first_sentence(command: Any) -> str:
    """Return the first sentence of the help."""
    text = " ".join((command.help or "").replace("\b", "").split())
    return escaped(re.split(r"(?<=\.)\s", text)[0])
