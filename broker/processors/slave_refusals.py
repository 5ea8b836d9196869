"""Requests that a slave refuses: it stores no message, and changes no transaction. Its master serves them.

    10, 310, 320   sends                        SERVICE_NOT_AVAILABLE (14), as RocketMQ 4.9
    36             CONSUMER_SEND_MSG_BACK       SYSTEM_ERROR (1), as RocketMQ 4.9
    37, 370        END_TRANSACTION, recalls     SLAVE_NOT_AVAILABLE (11)
    222            resets of offsets            SYSTEM_ERROR (1)

Clients try a send with code 14 at another broker; clients of RocketMQ 4.9 do not try code 2 again, with which RocketMQ
5.3 refuses it. Source: docs/reference/wire.md, "Slaves".
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import NO_RESPONSE_REMARK, RemotingCommand

SENDS: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
REFUSALS: Final[Mapping[RequestCode, tuple[ResponseCode, str]]] = {
    RequestCode.CONSUMER_SEND_MSG_BACK: (ResponseCode.SYSTEM_ERROR, PutStatus.SERVICE_NOT_AVAILABLE.name),
    RequestCode.END_TRANSACTION: (ResponseCode.SLAVE_NOT_AVAILABLE, NO_RESPONSE_REMARK),
    RequestCode.RECALL_MESSAGE: (ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker"),
}


class SlaveRefusals:
    """Refuses these requests. `refused_send` returns the response to a send that the store has refused."""

    def __init__(self, refused_send: Callable[[PutStatus], RemotingCommand]) -> None:
        self._refused_send = refused_send

    def __repr__(self) -> str:
        return "<SlaveRefusals>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that is refused."""
        handlers: dict[RequestCode, Processor] = dict.fromkeys(SENDS, self.refuse_send)
        handlers |= {code: partial(_refuse, *refusal) for code, refusal in REFUSALS.items()}
        return handlers

    def refuse_send(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Refuse a send before it creates a topic."""
        return self._refused_send(PutStatus.SERVICE_NOT_AVAILABLE)


def _refuse(code: ResponseCode, remark: str, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
    return RemotingCommand.response(code, remark)
