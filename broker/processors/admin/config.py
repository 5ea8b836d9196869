"""Settings at run time: UPDATE_BROKER_CONFIG (25), GET_BROKER_CONFIG (26), both in properties text.

`broker/config/live.py` applies a change, and decides about unknown keys and invalid values. A change that affects
routes is registered with the name servers before the response is written.

Source: docs/reference/behaviour.md, "Settings at run time".
"""

from collections.abc import Awaitable, Callable
from typing import Final

from skylarkmq.broker.config.live import RemoteSettings
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand

ANNOUNCED: Final = frozenset(("brokerPermission", "autoCreateTopicEnable"))
"""Keys whose change affects the registered routes."""


class ConfigProcessor:
    """Reads and changes the settings of one broker. `announced` waits until the name servers have the new routes."""

    def __init__(self, door: RemoteSettings, announced: Callable[[], Awaitable[None]]) -> None:
        self._door = door
        self._announced = announced

    def __repr__(self) -> str:
        return f"<ConfigProcessor {self._door!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
            RequestCode.GET_BROKER_CONFIG: self.get,
        }

    def get(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve GET_BROKER_CONFIG (26)."""
        version = self._door.version.encode().decode()
        return RemotingCommand.response(ext={"version": version}, body=self._door.text().encode())

    def update(self, _source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve UPDATE_BROKER_CONFIG (25)."""
        return self._update(bytes(command.body))

    async def _update(self, text: bytes) -> RemotingCommand:
        changed = await self._door.change(text)
        if not ANNOUNCED.isdisjoint(changed):
            await self._announced()
        return RemotingCommand.response()
