"""Every public call raises only ClientErrors, whatever its arguments are.

The tests call each public method of each class once for each of its parameters and each bad value, with valid values
for its other parameters. They do so with the asyncio classes, with the blocking ones, and with received messages.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest

import skylarkmq
from skylarkmq import (
    ClientError,
    ClientSettings,
    ConsumeFrom,
    ConsumerSettings,
    InvalidArgument,
    InvalidMessage,
    Message,
    MessageExt,
    MessageQueue,
    MessageQueueClient,
    ProducerSettings,
    TlsSettings,
    TransactionState,
    UnknownOption,
    blocking,
    connect,
)
from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.clients.sdk.blocking import Blocking
from skylarkmq.clients.sdk.connection.participant import Participant
from skylarkmq.clients.sdk.consuming.options import StandalonePullConsumerOptions, StandalonePushConsumerOptions
from skylarkmq.clients.sdk.producing.options import StandaloneProducerOptions
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.record import decode, encode
from tests.harness.limits import WAIT_LIMIT_S

BAD = [None, -1, float("nan"), "not a name", b"bytes", ["x"], object(), 2**80]
FAST = ProducerSettings(send_timeout_s=0.2)
PROMPT = ConsumerSettings(rebalance_interval_s=0.1)
QUEUE = MessageQueue("T", "broker-a", 0)
HOST = b"\x7f\0\0\x01\0\0\x2a\x9f"


def received() -> MessageExt:
    record = encode(
        topic="T", body=b"x", properties=b"", queue_id=0, queue_offset=0, physical_offset=0, born_timestamp=1,
        born_host=HOST, store_timestamp=1, store_host=HOST,
    )  # fmt: skip
    return decode(record)[0]


async def commit(_: str) -> TransactionState:
    return TransactionState.COMMIT


async def checker(_: MessageExt) -> TransactionState:
    return TransactionState.COMMIT


VALID: dict[str, Callable[[], Any]] = {
    "body": lambda: b"x",
    "config": lambda: SubscriptionGroupConfig(group_name="g"),
    "expression": lambda: "*",
    "group": lambda: "g",
    "handle": lambda: "x",
    "key": lambda: "k",
    "local": lambda: commit,
    "max_messages": lambda: 1,
    "message": lambda: Message("T", b"x"),
    "messages": lambda: [Message("T", b"x")],
    "offset": lambda: 0,
    "offset_msg_id": lambda: "7F00000100002A9F0000000000000000",
    "queue": lambda: QUEUE,
    "queues": lambda: [QUEUE],
    "since": lambda: datetime.now(UTC) - timedelta(hours=1),
    "timeout_s": lambda: 0.05,
    "topic": lambda: "T",
    "until": lambda: datetime.now(UTC),
    "value": lambda: "x",
    "when": lambda: datetime.now(UTC),
}
"""Values of the parameters without a default, and of `timeout_s`, by name."""

WAITS = {"start", "stop", "wait_stopped"}
"""Methods without arguments that matter here."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def methods_of(kind: type) -> list[str]:
    return [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_" and name not in WAITS]


class Call:
    """One call of a method. `text` names it, with its bad argument."""

    def __init__(self, method: Callable[..., Any], text: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.text = text
        self._make: Callable[[], Any] = partial(method, *args, **options)

    async def outcome(self) -> BaseException | None:
        """Return the exception of the call that is no ClientError."""
        try:
            result = self._make()
            if inspect.isawaitable(result):
                await result
            elif inspect.isasyncgen(result):
                async for _ in result:
                    pass
            elif isinstance(result, AbstractAsyncContextManager):
                async with result:
                    pass
        except ClientError:
            pass
        except Exception as error:  # noqa: BLE001 - the outcome
            return error
        return None

    def blocking_outcome(self) -> BaseException | None:
        """Do the same for a method that blocks."""
        try:
            result = self._make()
            if isinstance(result, Future):
                result.result(WAIT_LIMIT_S)
            elif isinstance(result, AbstractContextManager):
                with result:
                    pass
        except ClientError:
            pass
        except Exception as error:  # noqa: BLE001 - the outcome
            return error
        return None


def bad_calls(method: Callable[..., Any], valid: dict[str, Callable[[], Any]] = VALID) -> Iterator[Call]:
    """Yield the calls with one bad argument each; one call without arguments for a method that takes none."""
    parameters = inspect.signature(method).parameters
    name = method.__name__
    if not parameters:
        yield Call(method, f"{name}()", (), {})
    for bad_name, bad_parameter in parameters.items():
        for bad in BAD:
            if bad_name == "timeout_s" and bad == 2**80:
                continue  # a long time, and no error
            options = {
                other: valid[other]()
                for other, parameter in parameters.items()
                if parameter.kind is not inspect.Parameter.VAR_POSITIONAL
                and (parameter.default is inspect.Parameter.empty or other == "timeout_s")
            }
            if isinstance(options.get("message"), Message) and name == "reply":
                options["message"] = received()
            text = f"{name}({bad_name}={bad!r})"
            if bad_parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                yield Call(method, text, (bad,), options)
            else:
                yield Call(method, text, (), options | {bad_name: bad})


MAKE: dict[str, Callable[[MessageQueueClient], Participant]] = {
    "producer": lambda mq: mq.producer("p", serializer=str.encode, settings=FAST),
    "transaction_producer": lambda mq: mq.transaction_producer("tp", checker=checker, settings=FAST),
    "pull_consumer": lambda mq: mq.pull_consumer("pull"),
    "consumer": lambda mq: mq.consumer("push"),
    "admin": lambda mq: mq.admin(),
}


@asynccontextmanager
async def started(make: Callable[[MessageQueueClient], Participant], namesrv: str) -> AsyncIterator[Participant]:
    async with connect(namesrv) as mq, mq.producer("p") as producer, make(mq) as participant:
        await producer.send(Message("T", b"x"))
        yield participant


@pytest.mark.parametrize("kind", MAKE)
async def test_calls_with_bad_arguments_raise_client_errors(kind: str, broker: InProcessBroker) -> None:
    """Each method of a running object; the object can still be stopped afterwards."""
    failures: dict[str, BaseException] = {}
    async with started(MAKE[kind], broker.namesrv) as participant:
        for name in methods_of(type(participant)):
            for call in bad_calls(getattr(participant, name)):
                if (error := await call.outcome()) is not None:
                    failures[call.text] = error
    assert failures == {}


BLOCKING: dict[str, Callable[[blocking.MessageQueueClient], Blocking[Any]]] = {
    "producer": lambda mq: mq.producer("p", serializer=str.encode, settings=FAST),
    "transaction_producer": lambda mq: mq.transaction_producer("tp", checker=blocking_checker, settings=FAST),
    "pull_consumer": lambda mq: mq.pull_consumer("blocking-pull"),
    "consumer": lambda mq: mq.consumer("blocking-push"),
    "admin": lambda mq: mq.admin(),
}


def blocking_checker(_: object) -> TransactionState:
    return TransactionState.COMMIT


@contextmanager
def blocking_started(
    make: Callable[[blocking.MessageQueueClient], Blocking[Any]], namesrv: str
) -> Iterator[Blocking[Any]]:
    with blocking.connect(namesrv) as mq, mq.producer("p") as producer, make(mq) as participant:
        producer.send(Message("T", b"x"))
        yield participant


@pytest.mark.parametrize("kind", BLOCKING)
def test_blocking_calls_with_bad_arguments_raise_client_errors(kind: str, broker: InProcessBroker) -> None:
    """Each method of a running object; the object can still be stopped afterwards."""
    failures: dict[str, BaseException] = {}
    valid = VALID | {"local": lambda: blocking_checker}
    with blocking_started(BLOCKING[kind], broker.namesrv) as participant:
        for name in methods_of(type(participant)):
            for call in bad_calls(getattr(participant, name), valid):
                if (error := call.blocking_outcome()) is not None:
                    failures[call.text] = error
    assert failures == {}


@pytest.mark.parametrize("name", ["ack", "nack", "process"])
async def test_acknowledgments_with_bad_arguments_raise_client_errors(name: str, broker: InProcessBroker) -> None:
    """Each call is made for a message of its own; the consumer can still be stopped afterwards."""
    failures: dict[str, BaseException] = {}
    async with (
        connect(broker.namesrv) as mq,
        mq.producer("p") as producer,
        mq.consumer(
            f"async-{name}", topics=f"Async-{name}", consume_from=ConsumeFrom.FIRST, settings=PROMPT
        ) as consumer,
    ):
        messages = aiter(consumer)
        for number in count():
            await producer.send(Message(f"Async-{name}", b"x"))
            calls = list(bad_calls(getattr(await anext(messages), name)))
            if number == len(calls):
                break
            if (error := await calls[number].outcome()) is not None:
                failures[calls[number].text] = error
        await messages.aclose()
    assert failures == {}


@pytest.mark.parametrize("name", ["ack", "nack", "process"])
def test_blocking_acknowledgments_with_bad_arguments_raise_client_errors(name: str, broker: InProcessBroker) -> None:
    """The same for the messages of a blocking consumer."""
    failures: dict[str, BaseException] = {}
    with (
        blocking.connect(broker.namesrv) as mq,
        mq.producer("p") as producer,
        mq.consumer(
            f"block-{name}", topics=f"Block-{name}", consume_from=ConsumeFrom.FIRST, settings=PROMPT
        ) as consumer,
    ):
        messages = iter(consumer)
        for number in count():
            producer.send(Message(f"Block-{name}", b"x"))
            calls = list(bad_calls(getattr(next(messages), name)))
            if number == len(calls):
                break
            if (error := calls[number].blocking_outcome()) is not None:
                failures[calls[number].text] = error
    assert failures == {}


@pytest.mark.parametrize("kind", MAKE)
async def test_calls_of_objects_that_do_not_run_raise_client_errors(kind: str, broker: InProcessBroker) -> None:
    """Before the start, with valid arguments."""
    async with connect(broker.namesrv) as mq:
        participant = MAKE[kind](mq)
        for name in methods_of(type(participant)):
            call = next(bad_calls(getattr(participant, name)))
            assert await call.outcome() is None, call.text


OPTIONS = sorted(
    {
        *StandaloneProducerOptions.__annotations__,
        *StandalonePullConsumerOptions.__annotations__,
        *StandalonePushConsumerOptions.__annotations__,
        *("handler", "checker", "unknown"),
    }
)
CONSTRUCTORS: list[Callable[..., Any]] = [
    *(skylarkmq.Producer, skylarkmq.TransactionProducer, skylarkmq.PullConsumer, skylarkmq.PushConsumer),
    *(blocking.Producer, blocking.TransactionProducer, blocking.PullConsumer, blocking.PushConsumer),
]


@pytest.mark.parametrize("make", CONSTRUCTORS, ids=lambda make: f"{make.__module__}.{make.__name__}")
def test_constructors_with_bad_arguments_raise_client_errors(make: Callable[..., Any]) -> None:
    checkers = {"checker": checker} if "Transaction" in make.__name__ else {}
    with pytest.raises(InvalidArgument):
        make("not a group", namesrv="h:1", **checkers)
    for name in OPTIONS:
        for bad in BAD:
            try:
                make("g", **({"namesrv": "h:1"} | checkers | {name: bad}))
            except ClientError:
                pass
            except Exception as error:
                raise AssertionError(f"{name}={bad!r}") from error


@pytest.mark.parametrize("make", [blocking.PullConsumer, blocking.PushConsumer])
@pytest.mark.parametrize("name", ["on_assigned", "on_revoked"])
def test_callbacks_of_blocking_consumers_must_be_functions(make: Callable[..., Any], name: str) -> None:
    """The consumer would otherwise fail at its first rebalance, in the log only."""
    with pytest.raises(InvalidArgument, match=f"{name} must be a function"):
        make("g", namesrv="h:1", **{name: "text"})


@pytest.mark.parametrize("level", [-2, 2**31])
def test_a_delay_level_fits_into_its_header(level: int) -> None:
    """Such a level was sent, and every redelivery failed at the broker."""
    with pytest.raises(InvalidArgument, match=f"delay_level must be -1 to 2147483647, not {level}"):
        skylarkmq.Later(level)


@pytest.mark.parametrize("make", [connect, blocking.connect])
def test_connect_with_bad_arguments_raises_client_errors(make: Callable[..., Any]) -> None:
    for name in ("namesrv", "tls", "credentials", "namespace", "hooks", "settings", "unknown"):
        for bad in BAD:
            try:
                make(**({"namesrv": "h:1"} | {name: bad}))
            except ClientError:
                pass
            except Exception as error:
                raise AssertionError(f"{name}={bad!r}") from error


@pytest.mark.parametrize("kind", [ClientSettings, ProducerSettings, ConsumerSettings])
def test_settings_that_are_no_numbers_or_negative_are_refused(kind: type) -> None:
    """By name, when the settings are made."""
    for name, annotation in inspect.get_annotations(kind).items():
        if annotation in {int, float}:
            for bad in ("1", -1, float("nan"), object(), True):
                with pytest.raises(InvalidArgument, match=f"{name} must be a number"):
                    kind(**{name: bad})


@pytest.mark.parametrize(
    "message",
    [
        *(None, 5, "text", b"bytes", [], Message(5, b"x"), Message("T", "text"), Message("T", None), Message("T", 5)),  # type: ignore[arg-type]  # on purpose
        *(Message("T", b"x", tags=5), Message("T", b"x", keys=5), Message("T", b"x", keys=[5])),  # type: ignore[arg-type,list-item]  # on purpose
        *(Message("T", b"x", properties={"a": 5}), Message("T", b"x", properties=5), Message("T", b"x", flag="f")),  # type: ignore[arg-type,dict-item]  # on purpose
        *(Message("T", "long" * 10_000), Message("T", b"x", flag=2**40), Message("not a name", b"x")),  # type: ignore[arg-type]  # on purpose
    ],
)
async def test_messages_that_cannot_be_encoded_are_invalid(message: Any, broker: InProcessBroker) -> None:
    """In each way to send them; the producer goes on, and stops."""
    async with connect(broker.namesrv) as mq:
        with pytest.raises(ClientError):
            async with mq.producer("p", namespace="team-a") as named:
                await named.send(message)
        async with (
            mq.producer("p") as producer,
            mq.transaction_producer("tp", checker=checker) as transactions,
        ):
            for _ in range(2):  # without a route, and with one
                for sent in (
                    lambda: producer.send(message),
                    lambda: producer.send_nowait(message),
                    lambda: producer.send_batch([message]),
                    lambda: producer.send_oneway(message),
                    lambda: producer.request(message, timeout_s=0.1),
                    lambda: producer.send(message, delay=timedelta(seconds=1)),
                    lambda: producer.send(message, message_group="one"),
                    lambda: transactions.send_in_transaction(message, commit),
                ):
                    with pytest.raises(ClientError):
                        await sent()
                await producer.send(Message("T", b"x"))
            assert producer.statistics().sent == 2


def test_classes_of_errors_fit_those_of_python() -> None:
    """Programs that catch ValueError or TypeError catch ours too."""
    assert issubclass(InvalidArgument, ValueError)
    assert issubclass(InvalidMessage, InvalidArgument)
    assert issubclass(UnknownOption, TypeError)
    with pytest.raises(ValueError, match="settings must be a ProducerSettings, not a TlsSettings"):
        skylarkmq.Producer("p", namesrv="h:1", settings=TlsSettings())  # type: ignore[arg-type]  # on purpose
