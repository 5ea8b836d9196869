"""Connected clients: GET_CONSUMER_CONNECTION_LIST (203), GET_PRODUCER_CONNECTION_LIST (204), GET_ALL_PRODUCER_INFO
(328).

A group may have thousands of members, so responses are built in slices, from the members at the time of the request.
Source: docs/reference/wire.md, "Connections of groups".
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from skylarkmq.broker.metadata.client_sessions import ClientMember, ClientSessions
from skylarkmq.broker.processors.admin.queue_walk import in_slices
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.bodies.connections import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.consumer import ConsumerGroupHeader
from skylarkmq.protocol.headers.stats import ProducerGroupHeader


class ClientsProcessor:
    """Lists the members of groups. `heard_ms` converts a member's `seen_ms` (steady clock) to Unix time."""

    def __init__(self, sessions: ClientSessions, heard_ms: Callable[[int], int]) -> None:
        self._sessions = sessions
        self._heard_ms = heard_ms

    def __repr__(self) -> str:
        return f"<ClientsProcessor {self._sessions!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
        }

    def consumers(self, _source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve GET_CONSUMER_CONNECTION_LIST (203)."""
        name = command.header(ConsumerGroupHeader).consumer_group
        group = self._sessions.consumer_group(name)
        if group is None:
            raise RequestError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            subscription_table={topic: subscription.data for topic, subscription in group.subscriptions.items()},
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return _connections_response(body, list(group.members.values()))

    def producers(self, _source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve GET_PRODUCER_CONNECTION_LIST (204)."""
        name = command.header(ProducerGroupHeader).producer_group
        members = self._sessions.producers(name)
        if not members:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return _connections_response(ProducerConnection(), list(members.values()))

    def all_producers(self, _source: RequestSource, _command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve GET_ALL_PRODUCER_INFO (328)."""
        names = list(self._sessions.producer_groups())
        return self._all_producers({name: list(self._sessions.producers(name).values()) for name in names})

    async def _all_producers(self, groups: Mapping[str, list[ClientMember]]) -> RemotingCommand:
        table: dict[str, list[ProducerInfo]] = {name: [] for name in groups}
        for name, info in await in_slices(self._infos(groups)):
            table[name].append(info)
        return RemotingCommand.response(body=b"".join(await in_slices(ProducerTable(table).pieces())))

    def _infos(self, groups: Mapping[str, list[ClientMember]]) -> Iterator[tuple[str, ProducerInfo]]:
        for name, members in groups.items():
            for member in members:
                yield name, self._info(member)

    def _info(self, member: ClientMember) -> ProducerInfo:
        return ProducerInfo(
            client_id=member.client_id,
            remote_ip=f"/{member.channel.peer}",
            language=member.language,
            version=member.version,
            last_update_timestamp=self._heard_ms(member.seen_ms),
        )


async def _connections_response(
    body: ConsumerConnection | ProducerConnection, members: list[ClientMember]
) -> RemotingCommand:
    """Return the response with the members that the group had when the request came."""
    body.connection_set = await in_slices(_connections(members))
    return RemotingCommand.response(body=b"".join(await in_slices(body.pieces())))


def _connections(members: Iterable[ClientMember]) -> Iterator[ClientConnection]:
    for member in members:
        yield ClientConnection(member.client_id, member.channel.peer, member.language, member.version)
