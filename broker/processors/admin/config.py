"""Settings from outside: UPDATE_BROKER_CONFIG (25), GET_BROKER_CONFIG (26), both in properties text.

What a change means, and what becomes of keys and values that nobody can act on: `broker/config/live.py`. A change of
what the broker as a whole permits is known to the name servers before it is answered.

Source: docs/formats.md, "Settings at run time".
"""

from collections.abc import Awaitable, Callable
from typing import Final

from skylarkmq.broker.config.live import RemoteSettings
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand

ANNOUNCED: Final = frozenset(("brokerPermission", "autoCreateTopicEnable"))
"""Keys that change what routes say."""


class ConfigProcessor:
    """The settings of one broker. `announced` waits until the name servers know what has changed."""

    def __init__(self, door: RemoteSettings, announced: Callable[[], Awaitable[None]]) -> None:
        self._door = door
        self._announced = announced

    def __repr__(self) -> str:
        return f"<ConfigProcessor {self._door!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """What this processor serves."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
            RequestCode.GET_BROKER_CONFIG: self.get,
        }

    def get(self, _connection: Connection, _command: RemotingCommand) -> RemotingCommand:
        """Request 26."""
        version = self._door.version.encode().decode()
        return RemotingCommand.response(ext={"version": version}, body=self._door.text().encode())

    def update(self, _connection: Connection, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Request 25."""
        return self._update(bytes(command.body))

    async def _update(self, text: bytes) -> RemotingCommand:
        changed = await self._door.change(text)
        if not ANNOUNCED.isdisjoint(changed):
            await self._announced()
        return RemotingCommand.response()
