"""What can go wrong for an application, by what it can do about it.

    ClientError          everything below
      BrokerError        a peer understood the request and refused it: `code` and `remark` are its own
      NoRoute            no name server knows the topic, or the topic has no queue for this purpose
      ConnectFailed      no connection to an address
      ConnectionLost     the connection ended before the answer came: the request may have been carried out
      RequestTimeout     no answer in time: the request may have been carried out
      InvalidAnswer      the response cannot be read, or exceeds a limit of this client: the request was carried out
      InvalidMessage     this message cannot be sent as it is; nothing was sent
      InvalidArgument    an argument or option has a value that is not allowed; nothing was sent. Also a ValueError
      UnknownOption      a constructor was given an option that it does not have. Also a TypeError
      ClientClosed       the client was stopped, was never started, or was made before a fork

Every error carries what is known of `code`, `remark`, `broker` (name or address) and `topic`, and its text ends with
what to do. Source of the codes: docs/formats.md, "Codes".
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.errors import ProtocolError, RequestError

MAX_SHOWN_CHARACTERS: Final = 1000
"""Of a remark or a name of a peer in the text of an error; `ClientError.remark` keeps it whole."""

_ADVICE: Final[dict[int, str]] = {
    ResponseCode.SYSTEM_ERROR: "The remark tells what the broker stumbled over; its log has more.",
    ResponseCode.SYSTEM_BUSY: "The broker is overloaded: send less at a time, or try again in a moment.",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "That peer does not serve this request: check its version.",
    ResponseCode.MESSAGE_ILLEGAL: "Make body or properties smaller: the remark names the limits.",
    ResponseCode.SERVICE_NOT_AVAILABLE: "The broker cannot store now: check its disk, and whether it is a master.",
    ResponseCode.NO_PERMISSION: "Check the permissions of broker, topic and group (perm, consumeEnable).",
    ResponseCode.TOPIC_NOT_EXIST: "Create the topic, or allow autoCreateTopicEnable on the broker.",
    ResponseCode.QUERY_NOT_FOUND: "There is no such thing on this broker.",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "Correct the subscription's expression.",
    ResponseCode.SUBSCRIPTION_NOT_EXIST: "The broker does not know this consumer yet; a heartbeat tells it.",
    ResponseCode.SUBSCRIPTION_NOT_LATEST: "Give all members of the group the same subscriptions.",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "Create the group, or allow autoCreateSubscriptionGroup on the broker.",
    ResponseCode.INVALID_PARAMETER: "Correct what the remark names.",
    ResponseCode.FLOW_CONTROL: "The broker limits this client: slow down.",
    ResponseCode.GO_AWAY: "The broker is shutting down: another one will do, or this one when it is back.",
}


class ClientError(Exception):
    """Anything this SDK raises. Fields that do not apply are None."""

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
    """A refusal by a broker or name server."""

    @classmethod
    def of(
        cls, request_code: int, code: int, remark: str | None, broker: str, topic: str | None = None
    ) -> "BrokerError":
        """The error for `code` in answer to `request_code`."""
        about = f" for topic {topic}" if topic else ""
        advice = _ADVICE.get(code, "")
        text = f"{broker} refused {name_of(RequestCode, request_code)}{about}: {name_of(ResponseCode, code)}"
        if remark:
            text += f": {printable(remark)}"
        return cls(f"{text} {advice}".rstrip(), code=code, remark=remark, broker=broker, topic=topic)


class NoRoute(ClientError):
    """Nowhere to send to, or to read from."""


class ConnectFailed(ClientError):
    """An address that could not be reached."""


class ConnectionLost(ClientError):
    """A connection that ended with requests in flight."""


class RequestTimeout(ClientError):
    """A request without an answer in time."""


class InvalidAnswer(ClientError):
    """A response that cannot be read, or that exceeds a limit of this client."""


class InvalidMessage(ClientError):
    """A message that is refused before it leaves."""


class InvalidArgument(ClientError, ValueError):
    """An argument, option or setting with a value that is not allowed: an error of the program."""


class UnknownOption(ClientError, TypeError):
    """A keyword argument that the called class or method does not have: an error of the program."""


class ClientClosed(ClientError):
    """Use of a client before its start or after its stop."""


def name_of(kind: type[RequestCode] | type[ResponseCode], code: int) -> str:
    """`NAME (number)`, or the bare number of a code without a name here."""
    known = kind._value2member_map_.get(code)
    return f"code {code}" if known is None else f"{known.name} ({code})"


def printable(text: str) -> str:
    """Return a peer's text on one line, with control characters escaped, cut at MAX_SHOWN_CHARACTERS."""
    stripped = text.strip()
    cut = stripped[:MAX_SHOWN_CHARACTERS]
    line = "".join(c if c.isprintable() else " " if c == "\n" else ascii(c)[1:-1] for c in cut)
    return line if len(cut) == len(stripped) else f"{line} ... ({len(stripped)} characters)"


@contextmanager
def checking_argument(name: str) -> Iterator[None]:
    """Raise InvalidArgument for whatever checking the argument `name` raises about its value or type."""
    try:
        yield
    except ClientError:
        raise
    except RequestError as error:
        raise InvalidArgument(f"{name}: {error.remark}", code=error.code) from error
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgument(f"{name}: {error}") from error


@contextmanager
def reading_answer(code: int, peer: str, topic: str | None = None) -> Iterator[None]:
    """Raise InvalidAnswer for whatever decoding a response to request `code` raises over its header or body."""
    try:
        yield
    except (RequestError, ProtocolError) as error:
        raise invalid_answer(code, peer, str(error), topic) from error


def invalid_answer(code: int, peer: str, reason: str, topic: str | None = None) -> InvalidAnswer:
    """Return the error for a response to request `code` that cannot be used, for this reason."""
    about = f" for topic {printable(topic)}" if topic else ""
    return InvalidAnswer(
        f"{peer} answered {name_of(RequestCode, code)}{about} with a response that cannot be used: "
        f"{printable(reason)}. Check that the peer is a broker or name server, and its version.",
        broker=peer,
        topic=topic,
    )
