"""Settings of brokers and name servers as lines. The values of secrets are hidden; RocketMQ's servers send them."""

from collections.abc import Mapping

from skylarkmq.clients.mqadmin.java_output import printf
from skylarkmq.clients.mqadmin.secret_options import shown


def print_settings(settings: Mapping[str, str]) -> None:
    """Print a line for each setting, sorted by name."""
    for key, value in sorted(settings.items()):
        printf("%-50s=  %s%n", key, shown(key, value))
