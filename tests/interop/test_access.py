"""Official clients, and Skylark's SDK, against brokers with access control of each generation.

A client with the right credentials sends, consumes, and has a failed message redelivered. A client with wrong
credentials, with none, or without a right to the topic is refused with RocketMQ's remark, and nothing is stored.

CI runs a sample: each client with one generation (SAMPLE), and two of the refusals. All of them by command:

    pytest tests/interop/test_access.py -m interop --access=all

RocketMQ's own brokers pass the same tests (--broker-under-test=apache-4.9.7 and apache-5.3.3).
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import cache, partial
from typing import Final, NamedTuple

import pytest

from skylarkmq import LATER, BrokerError, ConsumeFrom, Later, Message, MessageExt, Producer, PushConsumer
from skylarkmq import Credentials as SdkCredentials
from tests.harness.access_table import AUTH, OTHER_TOPIC, PLAIN, SECRET
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.raw import Credentials
from tests.interop.access import SKYLARK, add_account, generations, guarded_broker
from tests.interop.brokers import BrokerUnderTest
from tests.interop.cases import CLIENTS
from tests.interop.drivers import Driver, DriverGroup
from tests.interop.matrix import covers
from tests.interop.plan import Order
from tests.interop.scenarios import Scenarios, run_scenarios

QUEUES: Final = 2
PER_MODE: Final = 3
QUICK_LEVELS: Final = " ".join(["1s"] * 18)
SETTINGS: Final = {"messageDelayLevel": QUICK_LEVELS}
SETTLED_AFTER_S: Final = 3.0
"""Time for the first heartbeats of a consumer after its start: Java sends them one second later."""
PROBE_INTERVAL_S: Final = 0.5
FAILS_ONCE: Final = "fails-once"

ADMITTED, WRONG_SECRET, UNKNOWN_KEY, NO_KEYS, NO_RIGHT = (
    "admitted",
    "wrong-secret",
    "unknown-key",
    "no-credentials",
    "no-right-to-the-topic",
)
STATES: Final = (ADMITTED, WRONG_SECRET, UNKNOWN_KEY, NO_KEYS, NO_RIGHT)
SAMPLED_STATES: Final = (ADMITTED, WRONG_SECRET, NO_RIGHT)
SAMPLE: Final = {
    "java-4.9.8": PLAIN,
    "java-4.9.8-binary": AUTH,
    "java-5.3.3": AUTH,
    "go-2.1.2": AUTH,
    "cpp-0.4.4": PLAIN,
    "ali-ons-3.12": PLAIN,
}
"""By client, the generation with which CI runs it."""

REMARKS: Final[Mapping[str, Mapping[str, str]]] = {
    PLAIN: {
        WRONG_SECRET: "Check signature failed for accessKey={key}",
        UNKNOWN_KEY: "No acl config for {key}",
        NO_KEYS: "No accessKey is configured",
        NO_RIGHT: "No default permission for topic:{topic}",
    },
    AUTH: {
        WRONG_SECRET: "check signature failed.",
        UNKNOWN_KEY: "User:{key} is not found.",
        NO_KEYS: "username cannot be null.",
        NO_RIGHT: "User:{key} has no permission to access Topic:{topic} from 127.0.0.1, no matched policies.",
    },
}
REFUSED_CODES: Final = {PLAIN: 1, AUTH: 16}
WITHOUT_REMARKS: Final = {"ali-ons-3.12"}
"""After several attempts, the client returns an error without the broker's remark, and logs nothing."""
CPP_WITHOUT_KEYS: Final = "No acl config for "
"""The C++ client sends an empty access key if it has no credentials."""

pytestmark = pytest.mark.interop


class Names(NamedTuple):
    """The topic and the group of a client, and what identifies it in the name of an account."""

    case: str
    topic: str
    group: str


def names_of(client: str) -> Names:
    case = client.replace(".", "-")
    return Names(case, f"Guarded-{case}", f"guarded-{case}")


class Played(NamedTuple):
    """A broker of one generation, and the scenarios of the clients that run against it."""

    broker: BrokerUnderTest
    scenarios: Scenarios[None]


Stage = Callable[[str], Played]
"""Returns the broker and the scenarios of a generation; starts them at the first call."""

CELLS: Final = [
    pytest.param(generation, client, id=f"{generation}-{client}", marks=covers("access", client))
    for generation in (PLAIN, AUTH)
    for client in CLIENTS
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Select the generations of the broker under test, and with --access=sample one generation of each client."""
    config = metafunc.config
    kinds = generations(str(config.getoption("--broker-under-test", default=SKYLARK)))
    if "client" in metafunc.fixturenames:
        cells = [cell for cell in CELLS if cell.values[0] in kinds]
        if not runs_everything(config):
            cells = [cell for cell in cells if SAMPLE[str(cell.values[1])] == cell.values[0]]
        metafunc.parametrize(("generation", "client"), cells)
    elif "generation" in metafunc.fixturenames:
        metafunc.parametrize("generation", kinds)


def runs_everything(config: pytest.Config) -> bool:
    return bool(config.getoption("--access", default="sample") == "all")


@pytest.fixture(scope="module")
def stage(
    request: pytest.FixtureRequest, broker_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    states = STATES if runs_everything(request.config) else SAMPLED_STATES
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    params = [item.callspec.params for item in items if item.module is request.module and "client" in item.fixturenames]
    with ExitStack() as stack:

        @cache
        def start(generation: str) -> Played:
            clients = [str(given["client"]) for given in params if given["generation"] == generation]
            home, homes = tmp_path_factory.mktemp(generation), tmp_path_factory.mktemp("clients")
            broker = stack.enter_context(guarded_broker(broker_kind, generation, home, SETTINGS))
            part = partial(play, generation, states)
            return Played(broker, stack.enter_context(run_scenarios(part, clients, broker, homes)))

        yield start


def test_a_client_works_with_the_right_credentials_only(stage: Stage, generation: str, client: str) -> None:
    """Sends and deliveries, also a redelivery, with the right credentials; refusals with RocketMQ's remarks without."""
    stage(generation).scenarios.result_of(client)


async def test_the_sdk_works_with_the_right_credentials_only(
    stage: Stage, generation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As official clients. The error has the broker's code and remark; the refusal of a heartbeat is logged."""
    with closing(stage(generation).broker.with_own_connections()) as broker:
        await use_the_sdk(generation, broker, caplog)


async def use_the_sdk(generation: str, broker: BrokerUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    names = names_of("sdk")
    broker.create_topic(names.topic, QUEUES)
    keys = keys_of(generation, names, broker)
    right = sdk_keys(keys[ADMITTED])
    attempts: list[int] = []
    is_redelivered = asyncio.Event()

    async def handler(message: MessageExt) -> Later | None:
        attempts.append(message.reconsume_times)
        if message.reconsume_times:
            is_redelivered.set()
            return None
        return LATER

    async with (
        PushConsumer(
            names.group,
            namesrv=broker.namesrv,
            handler=handler,
            consume_from=ConsumeFrom.FIRST,
            topics=[names.topic],
            credentials=right,
        ),
        Producer("senders", namesrv=broker.namesrv, credentials=right) as producer,
        asyncio.timeout(PROCESS_LIMIT_S),
    ):
        await producer.send(Message(names.topic, b"fails once"))
        await is_redelivered.wait()
    assert attempts == [0, 1]
    stored = bodies_of(broker, names)
    for state in REMARKS[generation]:
        remark = remark_of("sdk", generation, state, names, keys)
        wrong = sdk_keys(keys[state])
        async with Producer("senders", namesrv=broker.namesrv, credentials=wrong) as producer:
            with pytest.raises(BrokerError) as refused:
                await producer.send(Message(names.topic, state.encode()))
        assert remark in (refused.value.remark or "")
        assert refused.value.code == REFUSED_CODES[generation]
        caplog.clear()
        async with (
            PushConsumer(names.group, namesrv=broker.namesrv, handler=handler, topics=[names.topic], credentials=wrong),
            asyncio.timeout(PROCESS_LIMIT_S),
        ):
            while not any("heartbeat refused" in line and remark in line for line in caplog.messages):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert attempts == [0, 1]
    assert bodies_of(broker, names) == stored


def sdk_keys(keys: Credentials | None) -> SdkCredentials | None:
    return SdkCredentials(*keys) if keys else None


def play(generation: str, states: tuple[str, ...], client: str, broker: BrokerUnderTest, drivers: DriverGroup) -> None:
    names = names_of(client)
    broker.create_topic(names.topic, QUEUES)
    keys = keys_of(generation, names, broker)
    work_with_credentials(client, names, keys[ADMITTED], broker, drivers)
    stored = bodies_of(broker, names)
    for state in states:
        if state != ADMITTED:
            be_refused(client, names, state, remark_of(client, generation, state, names, keys), keys, broker, drivers)
    assert bodies_of(broker, names) == stored
    assert {seen.member for seen in drivers.deliveries} == {"reader"}


def keys_of(generation: str, names: Names, broker: BrokerUnderTest) -> dict[str, Credentials | None]:
    """Create the accounts of a client and return the keys that it has in each state."""
    right = add_account(broker, generation, f"member-{names.case}", names.topic, names.group)
    return {
        ADMITTED: right,
        WRONG_SECRET: right._replace(secret_key="not-" + SECRET),
        UNKNOWN_KEY: Credentials(f"unknown-{names.case}", SECRET),
        NO_KEYS: None,
        NO_RIGHT: add_account(broker, generation, f"other-{names.case}", OTHER_TOPIC, names.group),
    }


def work_with_credentials(
    client: str, names: Names, keys: Credentials | None, broker: BrokerUnderTest, drivers: DriverGroup
) -> None:
    """Send in every way that the client has. Each message arrives; the one whose handler fails arrives twice."""
    command = CLIENTS[client].command
    target = (broker.namesrv, names.topic)
    reader = drivers.start("reader", command, "retry", *target, names.group, credentials=keys)
    wait_until_consuming(names, broker, drivers)
    orders = orders_of(CLIENTS[client].modes)
    drivers.start("writer", command, "produce", *target, f"senders-{names.case}", credentials=keys).send(orders)
    drivers.wait_until(lambda: "writer" in drivers.left, "everything is sent", PROCESS_LIMIT_S)
    assert drivers.failed == []
    drivers.wait_for_messages({order.n for order in orders}, PROCESS_LIMIT_S)

    def is_redelivered() -> bool:
        return sum(seen.message.n == FAILS_ONCE for seen in drivers.deliveries) > 1

    drivers.wait_until(is_redelivered, "the failed message is redelivered", PROCESS_LIMIT_S)
    reader.leave()
    drivers.wait_until(lambda: "reader" in drivers.left, "the reader has left", PROCESS_LIMIT_S)


def wait_until_consuming(names: Names, broker: BrokerUnderTest, drivers: DriverGroup) -> None:
    """Send probes until the reader receives from every queue; some clients begin at the end of a queue."""
    deadline = time.monotonic() + PROCESS_LIMIT_S
    for number in itertools.count():
        assert time.monotonic() < deadline, drivers.summary()
        for queue in range(QUEUES):
            broker.send(names.topic, queue, {"n": f"probe-{number}", "TAGS": "a", "KEYS": "k"}, b"probe")
        drivers.process_events(PROBE_INTERVAL_S)
        if {seen.message.queue for seen in drivers.deliveries} == set(range(QUEUES)):
            return


def be_refused(
    client: str,
    names: Names,
    state: str,
    remark: str,
    keys: Mapping[str, Credentials | None],
    broker: BrokerUnderTest,
    drivers: DriverGroup,
) -> None:
    """Try to send and to consume with wrong credentials: the send fails, and the consumer is no member of its group."""
    command = CLIENTS[client].command
    target = (broker.namesrv, names.topic)
    consumer = f"consumer, {state}"
    drivers.start(consumer, command, "consume", *target, names.group, credentials=keys[state])
    order = Order(n=state, mode="sync", tags="a", keys=("k",), properties={"n": state}, body=state.encode())
    producer = drivers.start(f"producer, {state}", command, "produce", *target, "senders", credentials=keys[state])
    producer.send([order])
    drivers.wait_until(lambda: state in {one.n for one in drivers.failed}, "the send is refused", PROCESS_LIMIT_S)
    [failure] = [one.error for one in drivers.failed if one.n == state]
    assert state not in drivers.sent
    if client not in WITHOUT_REMARKS:
        # The error of the C++ client does not contain the remark, but its log does.
        assert remark in failure or has_logged(producer, remark), failure
    drivers.wait_until(lambda: consumer in drivers.started | drivers.left.keys(), "it has started", PROCESS_LIMIT_S)
    drivers.process_events(SETTLED_AFTER_S)
    assert broker.members(names.group) == []


def has_logged(driver: Driver, remark: str) -> bool:
    return any(remark in log.read_text(errors="replace") for log in driver.logs())


def remark_of(client: str, generation: str, state: str, names: Names, keys: Mapping[str, Credentials | None]) -> str:
    if client.startswith("cpp") and (generation, state) == (PLAIN, NO_KEYS):
        return CPP_WITHOUT_KEYS
    known = keys[state]
    return REMARKS[generation][state].format(key=known.access_key if known else "", topic=names.topic)


def orders_of(modes: tuple[str, ...]) -> list[Order]:
    """Return some messages for each mode, and one whose handler fails once."""
    orders = [
        Order(
            n=f"{mode}-{number}",
            mode=mode,
            tags="TagA",
            keys=(f"key-{mode}-{number}",),
            properties={"n": f"{mode}-{number}", "größe": "übergroß, 12 cm"},
            body=f"body {number}, 你好".encode(),
            last_of_batch=mode == "batch" and number == PER_MODE - 1,
        )
        for mode in modes
        for number in range(PER_MODE)
    ]
    failing = {"n": FAILS_ONCE, "fails": "1"}
    return [*orders, Order(n=FAILS_ONCE, mode="sync", tags="a", keys=("k",), properties=failing, body=b"fails")]


def bodies_of(broker: BrokerUnderTest, names: Names) -> list[bytes]:
    return sorted(message.body for message in broker.stored(names.topic, QUEUES, 1))
