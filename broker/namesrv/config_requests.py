"""A name server's settings over the network: UPDATE_NAMESRV_CONFIG (318), GET_NAMESRV_CONFIG (319), as properties text.

Source: docs/reference/behaviour.md, "Settings at run time".
"""

from collections.abc import Awaitable
from typing import Protocol

from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand


class Configuration(Protocol):
    """The settings that these requests read and change."""

    def text(self) -> str:
        """Return every key with its value, one per line."""

    async def change(self, data: bytes) -> frozenset[str]:
        """Apply the changes of a properties text. Raises RequestError for a protected key."""


class ConfigRequests:
    """Processors for the settings of one name server."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def __repr__(self) -> str:
        return f"<ConfigRequests {self._configuration!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the processor of each request code."""
        return {RequestCode.UPDATE_NAMESRV_CONFIG: self.update, RequestCode.GET_NAMESRV_CONFIG: self.get}

    def get(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """GET_NAMESRV_CONFIG (319): return all settings."""
        return RemotingCommand.response(body=self._configuration.text().encode())

    def update(self, _source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """UPDATE_NAMESRV_CONFIG (318): change settings."""
        return self._update(bytes(command.body))

    async def _update(self, text: bytes) -> RemotingCommand:
        await self._configuration.change(text)
        return RemotingCommand.response()
