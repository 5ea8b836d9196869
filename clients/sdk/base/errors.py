"""The errors of the SDK. Every exception that a public call raises is a ClientError.

    ClientError          all of the following
      BrokerError        a broker or name server refused the request; `code` and `remark` come from its response
      NoRoute            no name server has a route of the topic, or the topic has no queue for this purpose
      ConnectFailed      no connection to an address could be opened
      ConnectionLost     the connection closed before the response arrived: the request may have been executed
      RequestTimeout     no response in time: the request may have been executed
      InvalidResponse    the response cannot be decoded, or exceeds a limit of this client: the request was executed
      InvalidBody        a received body cannot be inflated or deserialized
      InvalidArgument    an argument or option is not allowed; nothing was sent. Also a ValueError
        InvalidMessage   a message cannot be sent as it is
      UnknownOption      a constructor does not have this option. Also a TypeError
      ClientClosed       the client is stopped, was never started, or was made before a fork

Errors carry `code`, `remark`, `broker` (name or address) and `topic` as far as they are known. The text ends with a
remedy. Source of the codes: docs/reference/wire.md, "Codes".
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.errors import ProtocolError, RequestError

MAX_SHOWN_CHARACTERS: Final = 1000
"""Limit of a peer's remark or name in the text of an error. `ClientError.remark` has the whole remark."""

_DENIED_BY_4_9: Final = "org.apache.rocketmq.acl.common.AclException"
"""In the remark of SYSTEM_ERROR (1): how a RocketMQ 4.9 broker denies a request."""
_ADVICE: Final[dict[int, str]] = {
    ResponseCode.SYSTEM_ERROR: "The remark names the cause; the broker's log has more.",
    ResponseCode.SYSTEM_BUSY: "The broker is overloaded: send fewer messages at a time, or retry later.",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "The peer does not support this request: check its version.",
    ResponseCode.MESSAGE_ILLEGAL: "Make the body or the properties smaller: the remark names the limits.",
    ResponseCode.SERVICE_NOT_AVAILABLE: "The broker cannot store messages now: check its disk and its role.",
    ResponseCode.NO_PERMISSION: "Check the permissions of broker, topic and group (perm, consumeEnable).",
    ResponseCode.TOPIC_NOT_EXIST: "Create the topic, or allow autoCreateTopicEnable on the broker.",
    ResponseCode.QUERY_NOT_FOUND: "This broker has no such message, offset or topic.",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "Correct the subscription's expression.",
    ResponseCode.SUBSCRIPTION_NOT_EXIST: "The broker does not have this consumer yet; the next heartbeat adds it.",
    ResponseCode.SUBSCRIPTION_NOT_LATEST: "Give all members of the group the same subscriptions.",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "Create the group, or allow autoCreateSubscriptionGroup on the broker.",
    ResponseCode.INVALID_PARAMETER: "Correct the argument that the remark names.",
    ResponseCode.FLOW_CONTROL: "The broker limits the rate of this client: send more slowly.",
    ResponseCode.GO_AWAY: "The broker is shutting down: use another broker, or retry after its restart.",
}


class ClientError(Exception):
    """The base of all errors of the SDK. Fields that do not apply are None."""

    def __init__(
        self,
        text: str,
        *,
        code: int | None = None,
        remark: str | None = None,
        broker: str | None = None,
        topic: str | None = None,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.remark = remark
        self.broker = broker
        self.topic = topic


class BrokerError(ClientError):
    """A broker or name server refused the request."""

    @classmethod
    def of(
        cls, request_code: int, code: int, remark: str | None, broker: str, topic: str | None = None
    ) -> "BrokerError":
        """Return the error for response code `code` to request `request_code`."""
        about = f" for topic {topic}" if topic else ""
        advice = _ADVICE.get(code, "")
        text = f"{broker} refused {name_of(RequestCode, request_code)}{about}: {name_of(ResponseCode, code)}"
        if remark:
            text += f": {printable(remark)}"
        if advice and not text.endswith("."):
            text += "."
        return cls(f"{text} {advice}".rstrip(), code=code, remark=remark, broker=broker, topic=topic)


def is_denied(error: BrokerError) -> bool:
    """Return whether access control has refused the request: RocketMQ 4.9 does so with SYSTEM_ERROR (1)."""
    return error.code == ResponseCode.NO_PERMISSION or _DENIED_BY_4_9 in (error.remark or "")


class NoRoute(ClientError):
    """No broker or queue to send to, or to read from."""


class ConnectFailed(ClientError):
    """No connection to an address could be opened."""


class ConnectionLost(ClientError):
    """A connection closed while requests were in flight."""


class RequestTimeout(ClientError):
    """No response arrived within the time limit."""


class InvalidResponse(ClientError):
    """A response cannot be decoded, or exceeds a limit of this client."""


class InvalidArgument(ClientError, ValueError):
    """An argument, option or setting has a value that is not allowed: the program has an error."""


class InvalidMessage(InvalidArgument):
    """A message cannot be sent as it is; nothing was sent."""


class UnknownOption(ClientError, TypeError):
    """The called class or method does not have this keyword argument: the program has an error."""


class InvalidBody(ClientError):
    """A received message whose body cannot be inflated or deserialized. No handler gets it."""


class ClientClosed(ClientError):
    """The client is not running: it was not started, is stopped, or was made before a fork."""


def name_of(kind: type[RequestCode] | type[ResponseCode], code: int) -> str:
    """Return `NAME (number)`, or `code number` if the code has no name here."""
    known = kind._value2member_map_.get(code)
    return f"code {code}" if known is None else f"{known.name} ({code})"


def escaped(text: str) -> str:
    """Return a text with control characters and other unprintable ones escaped as in Python."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def printable(text: str) -> str:
    """Return a peer's text on one line, with control characters escaped, cut at MAX_SHOWN_CHARACTERS."""
    stripped = text.strip()
    cut = stripped[:MAX_SHOWN_CHARACTERS]
    line = escaped(cut.replace("\n", " "))
    return line if len(cut) == len(stripped) else f"{line} ... ({len(stripped)} characters)"


@contextmanager
def checking_argument(name: str) -> Iterator[None]:
    """Raise InvalidArgument instead of the errors that the argument `name` causes by its value or type."""
    try:
        yield
    except ClientError:
        raise
    except RequestError as error:
        raise InvalidArgument(f"{name}: {error.remark}", code=error.code) from error
    except (ValueError, TypeError, AttributeError, OverflowError, OSError) as error:
        raise InvalidArgument(f"{name}: {error}") from error


@contextmanager
def reading_response(code: int, peer: str, topic: str | None = None) -> Iterator[None]:
    """Raise InvalidResponse instead of the errors that decoding a response to request `code` raises."""
    try:
        yield
    except (RequestError, ProtocolError) as error:
        raise invalid_response(code, peer, str(error), topic) from error


def invalid_response(code: int, peer: str, reason: str, topic: str | None = None) -> InvalidResponse:
    """Return the error for an unusable response to request `code`."""
    about = f" for topic {printable(topic)}" if topic else ""
    return InvalidResponse(
        f"the response of {peer} to {name_of(RequestCode, code)}{about} cannot be used: "
        f"{printable(reason)}. Check that the peer is a broker or name server, and its version.",
        broker=peer,
        topic=topic,
    )
