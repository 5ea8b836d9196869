"""The examples of docs/use/arrow.md print the output below them; its tables agree with the code."""

import asyncio
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from skylarkmq.arrow import DEFAULT_COLUMNS, TYPES, scan_store, scan_topic
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.route import BrokerData
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.message import tags_code
from tests.clients.cluster import running_cluster
from tests.harness.stores import message, opened

DOCUMENT = (Path(__file__).resolve().parent.parent / "docs" / "use" / "arrow.md").read_text()
EXAMPLE = re.compile(r"^### (.+?)\n.*?^```python\n(.*?)^```\n\n```text\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
EXAMPLES = {found[1]: (found[2], found[3]) for found in EXAMPLE.finditer(DOCUMENT)}
OF_STORES = [name for name, (code, _) in EXAMPLES.items() if "/data/store" in code]
OF_TOPICS = [name for name in EXAMPLES if name not in OF_STORES]
COUNT = 1000


def order(number: int) -> tuple[bytes, str, str]:
    """Return body, properties and tag of an order."""
    tag = "refunded" if number % 5 == 4 else "paid"
    return b'{"amount": %d}' % number, f"KEYS\x01order-{number}\x02TAGS\x01{tag}\x02", tag


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of the examples."""
    root = tmp_path_factory.mktemp("orders")
    with opened(root) as written:
        for number in range(COUNT):
            body, properties, tag = order(number)
            written.put(message(body, "Orders", number % 4, properties=properties.encode(), tags_code=tags_code(tag)))
    return root


@pytest.mark.parametrize("name", OF_STORES)
def test_an_example_with_a_store_prints_its_output(name: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each library reads the messages."""
    code, output = EXAMPLES[name]
    exec(compile(code.replace("/data/store", str(store)), f"{name}.py", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == output


@pytest.mark.parametrize("name", OF_TOPICS)
async def test_an_example_with_brokers_prints_its_output(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The messages are pulled from the brokers of the topic."""
    code, output = EXAMPLES[name]
    async with running_cluster() as cluster:
        cluster.topics["Orders"] = 4
        addresses = {broker.name: BrokerData("c", broker.name, {0: broker.address}) for broker in cluster.brokers}
        info = ClusterInfo(broker_addr_table=addresses).encode()
        cluster.name_server.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda *_: RemotingCommand.response(body=info))
        for number in range(COUNT):
            cluster.broker.store("Orders", number % 4, *order(number)[:2])
        program = compile(code.replace("127.0.0.1:9876", cluster.namesrv), f"{name}.py", "exec")
        await asyncio.to_thread(exec, program, {"__name__": "__main__"})
    assert capsys.readouterr().out == output


def test_there_is_an_example_for_each_library() -> None:
    """Polars, DuckDB, pandas, and PyArrow alone."""
    assert {"PyArrow", "Polars", "DuckDB", "pandas"} < EXAMPLES.keys()
    assert OF_TOPICS


def test_the_table_of_columns_matches_the_code() -> None:
    """Names, types, order, and the line between default and other columns."""
    _, _, rest = DOCUMENT.partition("<!-- columns -->\n\n")
    rows = [line.split(" | ") for line in rest.partition("\n\n")[0].splitlines()[2:]]
    line = next(number for number, cells in enumerate(rows) if "not in the default" in cells[0])
    named = [(cells[0].strip("| `"), cells[1]) for cells in rows]
    assert [name for name, _ in named[:line]] == list(DEFAULT_COLUMNS)
    del named[line]
    assert named == [(name, str(kind)) for name, kind in TYPES.items()]


@pytest.mark.parametrize("function", [scan_store, scan_topic], ids=lambda function: function.__name__)
def test_the_tables_name_every_argument(function: Callable[..., object]) -> None:
    """Each keyword argument is in the table of its function, and no other."""
    _, _, rest = DOCUMENT.partition(f"| Argument of `{function.__name__}` |")
    names = re.findall(r"`(\w+)`", "".join(line.split(" | ")[0] for line in rest.partition("\n\n")[0].splitlines()[1:]))
    arguments = {name for name, one in inspect.signature(function).parameters.items() if one.kind is one.KEYWORD_ONLY}
    assert sorted(names) == sorted(arguments - {"columns", "decode"} - ({"topics"} if "topics" not in names else set()))
