"""A name server's settings from outside: UPDATE_NAMESRV_CONFIG (318), GET_NAMESRV_CONFIG (319), in properties text.

Source: docs/formats.md, "Settings at run time".
"""

from collections.abc import Awaitable
from typing import Protocol

from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand


class Configuration(Protocol):
    """What stands behind these requests."""

    def text(self) -> str:
        """Every key with its value, a line each."""

    async def change(self, data: bytes) -> frozenset[str]:
        """Change what a properties text says. RequestError for what may not be changed."""


class ConfigRequests:
    """The settings of one name server."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def __repr__(self) -> str:
        return f"<ConfigRequests {self._configuration!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """What is served here."""
        return {RequestCode.UPDATE_NAMESRV_CONFIG: self.update, RequestCode.GET_NAMESRV_CONFIG: self.get}

    def get(self, _connection: Connection, _command: RemotingCommand) -> RemotingCommand:
        """319: all settings."""
        return RemotingCommand.response(body=self._configuration.text().encode())

    def update(self, _connection: Connection, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """318: other values for some."""
        return self._update(bytes(command.body))

    async def _update(self, text: bytes) -> RemotingCommand:
        await self._configuration.change(text)
        return RemotingCommand.response()
