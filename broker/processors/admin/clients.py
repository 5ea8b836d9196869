"""Who is there: GET_CONSUMER_CONNECTION_LIST (203), GET_PRODUCER_CONNECTION_LIST (204), GET_ALL_PRODUCER_INFO (328).

Source: docs/formats.md, "Connections of groups".
"""

from collections.abc import Callable, Iterable

from broker.metadata.client_sessions import ClientMember, ClientSessions
from broker.remoting.connection import Connection
from broker.remoting.dispatch import Processor
from protocol.bodies.connections import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from protocol.codes import RequestCode, ResponseCode
from protocol.command import RemotingCommand
from protocol.errors import RequestError
from protocol.headers.consumer import ConsumerGroupHeader
from protocol.headers.stats import ProducerGroupHeader


class ClientsProcessor:
    """Tells the members of groups. `heard_ms` gives the Unix time of a time that a member was seen at."""

    def __init__(self, sessions: ClientSessions, heard_ms: Callable[[int], int]) -> None:
        self._sessions = sessions
        self._heard_ms = heard_ms

    def __repr__(self) -> str:
        return f"<ClientsProcessor {self._sessions!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """What this processor serves."""
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
        }

    def consumers(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Request 203."""
        name = command.header(ConsumerGroupHeader).consumer_group
        group = self._sessions.consumer_group(name)
        if group is None:
            raise RequestError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            connection_set=_connections(group.members.values()),
            subscription_table={topic: subscription.data for topic, subscription in group.subscriptions.items()},
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return RemotingCommand.response(body=body.encode())

    def producers(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Request 204."""
        name = command.header(ProducerGroupHeader).producer_group
        members = self._sessions.producers(name)
        if not members:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return RemotingCommand.response(body=ProducerConnection(_connections(members.values())).encode())

    def all_producers(self, _connection: Connection, _command: RemotingCommand) -> RemotingCommand:
        """Request 328."""
        names = self._sessions.producer_groups()
        table = {name: [self._info(member) for member in self._sessions.producers(name).values()] for name in names}
        return RemotingCommand.response(body=ProducerTable(table).encode())

    def _info(self, member: ClientMember) -> ProducerInfo:
        return ProducerInfo(
            client_id=member.client_id,
            remote_ip=f"/{member.connection.peer}",
            language=member.language,
            version=member.version,
            last_update_timestamp=self._heard_ms(member.seen_ms),
        )


def _connections(members: Iterable[ClientMember]) -> list[ClientConnection]:
    return [
        ClientConnection(member.client_id, member.connection.peer, member.language, member.version)
        for member in members
    ]
