"""The command line: `mqadmin` lists the commands, `mqadmin <command>` runs one, `mqadmin help <command>` explains it.

Commands for people have groups (`mqadmin topic list`), commands of RocketMQ's tool have none (`mqadmin topicList`).
Names match regardless of case. Options of RocketMQ's commands follow its tool (`java_arguments.py`). Failures are one
line on stderr (`failures.py`).
"""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from skylarkmq.clients.mqadmin.app.java_arguments import standard_arguments
from skylarkmq.clients.mqadmin.commands import Commands, Registered
from skylarkmq.clients.mqadmin.failures import (
    DONE,
    INTERRUPTED,
    USAGE,
    CommandFailed,
    exit_code_of,
    usage_error,
    write_failure,
)
from skylarkmq.clients.mqadmin.java_output import printf
from skylarkmq.clients.mqadmin.people import acl, dlq, user
from skylarkmq.clients.mqadmin.people import broker as people_broker
from skylarkmq.clients.mqadmin.people import cluster as people_cluster
from skylarkmq.clients.mqadmin.people import group as people_group
from skylarkmq.clients.mqadmin.people import ha as people_ha
from skylarkmq.clients.mqadmin.people import message as people_message
from skylarkmq.clients.mqadmin.people import namesrv as people_namesrv
from skylarkmq.clients.mqadmin.people import topic as people_topic
from skylarkmq.clients.mqadmin.people.output import with_default_watch
from skylarkmq.clients.mqadmin.rocketmq import (
    broker,
    cluster,
    export,
    group,
    group_member,
    message,
    namesrv,
    offset,
    plain_acl,
    queue_messages,
    sending,
    stats,
    topic,
    users,
)
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.commands import MissingExtra, load

MODULES: Final = (
    topic,
    group,
    group_member,
    offset,
    cluster,
    broker,
    namesrv,
    message,
    queue_messages,
    sending,
    stats,
    users,
    plain_acl,
    export,
)
ROCKETMQ: Final[list[Registered]] = [command for module in MODULES for command in module.COMMANDS.registered]
"""RocketMQ's commands."""
GROUPS: Final[dict[str, tuple[str, Commands]]] = {
    "topic": ("Topics.", people_topic.COMMANDS),
    "group": ("Consumer groups and their lag.", people_group.COMMANDS),
    "message": ("Messages.", people_message.COMMANDS),
    "dlq": ("Dead letters: messages that a group could not handle.", dlq.COMMANDS),
    "cluster": ("All brokers.", people_cluster.COMMANDS),
    "broker": ("Brokers and their settings.", people_broker.COMMANDS),
    "ha": ("Replication: the copies of brokers.", people_ha.COMMANDS),
    "namesrv": ("Name servers and their settings.", people_namesrv.COMMANDS),
    "user": ("Users of RocketMQ 5.3's access control.", user.COMMANDS),
    "acl": ("Policies: what users may do.", acl.COMMANDS),
}
"""The commands for people, by group."""
ON_DEMAND: Final = {
    "console": ("skylarkmq.clients.mqadmin.console_command", "Serve the console in the browser."),
    "doctor": ("skylarkmq.clients.mqadmin.doctor.command", "Find problems of a cluster, and what to do about them."),
}
"""Commands whose modules need packages that other commands do not load, with the function of the same name."""
_USAGE_ERROR_OF_TYPER: Final = 2


class JavaCommand(TyperCommand):
    """A command that takes its options in the forms of RocketMQ's tool."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments that are no options."""
        takes_value = {
            option: not getattr(parameter, "is_flag", False)
            for parameter in self.get_params(ctx)
            for option in parameter.opts
        }
        return super().parse_args(ctx, list(standard_arguments(args, takes_value)))


class GroupedCommand(TyperCommand):
    """A command of a group. `--watch` needs no value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments that are no options."""
        return super().parse_args(ctx, with_default_watch(args))


class CommandGroup(TyperGroup):
    """Commands by name, regardless of case."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command, or None."""
        found = super().get_command(ctx, cmd_name)
        names = {name.lower(): name for name in self.commands}
        return found or super().get_command(ctx, names.get(cmd_name.lower(), cmd_name))


class AllCommands(CommandGroup):
    """All commands and groups, and `help <command>`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of groups, of the commands on demand, and then of RocketMQ's commands."""
        first = {*GROUPS, *ON_DEMAND}
        return sorted([*super().list_commands(ctx), *ON_DEMAND], key=lambda name: name not in first)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command, or None."""
        if cmd_name.lower() in ON_DEMAND:
            return on_demand(cmd_name.lower())
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of a command, the command, and its arguments."""
        if args[0].lower() == "help" and len(args) > 1:
            args = [*args[1:], "--help"]
        return super().resolve_command(ctx, args)


def on_demand(name: str) -> Any:
    """Return a command whose module is loaded now. CommandFailed if packages are missing."""
    module, description = ON_DEMAND[name]
    try:
        run_command = load(module, name, "admin")
    except MissingExtra as error:
        raise CommandFailed(str(error), USAGE) from error
    own = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False)
    own.command(name, help=description, context_settings=HELP)(run_command)
    return typer.main.get_command(own)


HELP: Final = {"help_option_names": ["-h", "--help"]}


def typer_of_group(description: str) -> typer.Typer:
    """Return a group without commands; alone it prints its help."""
    return typer.Typer(
        cls=CommandGroup, help=description, no_args_is_help=True, rich_markup_mode=None, context_settings=HELP
    )


def add_group(parent: typer.Typer, name: str, description: str, commands: Commands) -> None:
    """Add a group with its commands; `config get` is added to a group `config`."""
    group = typer_of_group(description)
    inner: dict[str, typer.Typer] = {}
    for command in commands.registered:
        *outer, own = command.name.split()
        target = group
        if outer:
            if outer[0] not in inner:
                inner[outer[0]] = typer_of_group("Settings.")
                group.add_typer(inner[outer[0]], name=outer[0])
            target = inner[outer[0]]
        target.command(own, cls=GroupedCommand, help=command.help, context_settings=HELP)(command.run)
    parent.add_typer(group, name=name)


app = typer.Typer(
    cls=AllCommands,
    name="mqadmin",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP,
)
for group_name, (group_description, commands) in GROUPS.items():
    add_group(app, group_name, group_description, commands)
for command in ROCKETMQ:
    app.command(command.name, cls=JavaCommand, help=command.description)(command.run)


@app.callback()
def list_commands(context: typer.Context) -> None:
    """Administer brokers, topics, consumer groups and messages: this broker's, or Apache RocketMQ's."""
    if context.invoked_subcommand is None:
        printf("Commands for people:%n")
        for name, (_, group) in GROUPS.items():
            for command in group.registered:
                printf("   %-35s %s%n", f"{name} {command.name}", command.description)
        for name, (_, description) in ON_DEMAND.items():
            printf("   %-35s %s%n", name, description)
        printf("%nThe most commonly used mqadmin commands are:%n")
        for command in ROCKETMQ:
            printf("   %-35s %s%n", command.name, command.description)
        printf("%nSee 'mqadmin help <command>' for more information on a specific command.%n")


def run(arguments: Sequence[str]) -> int:
    """Run a command, and return its exit code. A failure is one line on stderr."""
    try:
        code = _code_of_call(list(arguments))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of stdout has ended, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush when the process exits
        return DONE
    return code


def _code_of_call(arguments: list[str]) -> int:
    try:
        check_encoding(arguments)
        _commands()([] if arguments == ["help"] else arguments, prog_name="mqadmin")
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # typer turns it into the exit code 1
            raise stop.__context__ from None
        return USAGE if stop.code == _USAGE_ERROR_OF_TYPER else int(stop.code or DONE)
    except (CommandFailed, ClientError, OSError) as error:
        write_failure(error)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    return DONE


def check_encoding(arguments: Sequence[str]) -> None:
    """CommandFailed unless each argument is UTF-8. Python represents other bytes as lone surrogates."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise usage_error(f"the argument {argument!r} is not UTF-8.") from None


@cache
def _commands() -> Callable[..., None]:
    """Return the group of all commands; typer takes 50 ms to make it."""
    return typer.main.get_command(app)


def main() -> None:
    """Run the command of the process's arguments, and exit with its code."""
    logging.basicConfig(level=logging.CRITICAL)  # a failure is one line, not also the lines of a log
    sys.exit(run(sys.argv[1:]))
