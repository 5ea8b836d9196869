"""Settings of brokers and name servers as lines. The values of secrets are hidden; RocketMQ's servers send them."""

import re
from collections.abc import Mapping
from typing import Final

from skylarkmq.clients.mqadmin.java_output import printf
from skylarkmq.clients.mqadmin.secret_options import MASK

SECRET_NAME: Final = re.compile(r"secret|passw|credential|token|authenticationuser|exporterheader", re.IGNORECASE)


def print_settings(settings: Mapping[str, str]) -> None:
    """Print a line for each setting, sorted by name."""
    for key, value in sorted(settings.items()):
        printf("%-50s=  %s%n", key, shown(key, value))


def shown(key: str, value: str) -> str:
    """Return the value, or a mask if the name of the setting suggests a secret; a switch is none."""
    return MASK if value not in {"", "true", "false"} and SECRET_NAME.search(key) else value
