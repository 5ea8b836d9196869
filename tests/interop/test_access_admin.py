"""mqadmin manages the accounts of a broker with access control, with 4.9.7 and with 5.3.3: RocketMQ's own, and ours.

The same commands run against RocketMQ's own broker and against Skylark, from the same accounts; the outputs are the
same. Users and policies of 5.3 are copied in both directions, and 4.9's plain_acl.yml is exchanged.
"""

import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final

import pytest

from skylarkmq.clients.mqadmin.app.cli import run
from tests.harness.access_table import (
    ADMINISTRATOR,
    AUTH,
    PLAIN,
    REQUESTS,
    SECRET,
    WHITE,
    Caller,
    recorded,
    responses,
)
from tests.harness.raw import Credentials
from tests.interop.access import SKYLARK, acl_file, guarded_broker, port_of
from tests.interop.brokers import BrokerUnderTest
from tests.interop.compatibility import FACTS, TRIED
from tests.interop.mqadmin_process import MqadminProcess

BROKER: Final = "<broker>"
CLUSTER: Final = "DefaultCluster"
Command = tuple[str, ...]

PLAIN_COMMANDS: Final[Sequence[Command]] = (
    ("clusterAclConfigVersion", "-b", BROKER),
    ("updateAclConfig", "-b", BROKER, "-a", "newcomer", "-s", SECRET, "-t", "Alpha=PUB,Beta=DENY", "-g", "readers=SUB"),
    ("updateAclConfig", "-c", CLUSTER, "-a", "newcomer", "-s", "87654321", "-w", WHITE, "-i", "SUB", "-u", "PUB|SUB"),
    ("updateAclConfig", "-b", BROKER, "-a", "newcomer", "-s", SECRET, "-m", "true"),
    ("updateAclConfig", "-b", BROKER, "-a", "short", "-s", SECRET),
    ("updateAclConfig", "-b", BROKER, "-a", "newcomer", "-s", "short"),
    ("updateAclConfig", "-b", BROKER, "-a", "newcomer", "-s", SECRET, "-t", "Alpha=FLY"),
    ("updateAclConfig", "-b", BROKER, "-a", "newcomer", "-s", SECRET, "-g", "readers"),
    ("updateGlobalWhiteAddr", "-b", BROKER, "-g", "127.0.0.4,10.10.*.*"),
    ("updateGlobalWhiteAddr", "-b", BROKER, "-g", "127.0.0.4", "-p", "/nonexistent/plain_acl.yml"),
    ("updateAclConfig", "-b", BROKER, "-a", "passing", "-s", SECRET),
    ("deleteAclConfig", "-b", BROKER, "-a", "passing"),
    ("deleteAclConfig", "-c", CLUSTER, "-a", "passing"),
    ("clusterAclConfigVersion", "-c", CLUSTER),
)

ALICE: Final = ("-b", BROKER, "-u", "alice")
OF_ALICE: Final = ("-b", BROKER, "-s", "User:alice")
AUTH_COMMANDS: Final[Sequence[Command]] = (
    ("listUser", "-b", BROKER),
    ("createUser", *ALICE, "-p", SECRET),
    ("createUser", *ALICE, "-p", SECRET),
    ("createUser", "-c", CLUSTER, "-u", "boss", "-p", SECRET, "-t", "Super"),
    ("getUser", *ALICE),
    ("updateUser", *ALICE, "-p", "87654321", "-s", "disable"),
    ("getUser", *ALICE),
    ("updateUser", *ALICE, "-s", "enable"),
    ("updateUser", "-b", BROKER, "-u", "unknown", "-p", SECRET),
    ("getUser", "-b", BROKER, "-u", "unknown"),
    ("listUser", "-b", BROKER, "-f", "o"),
    ("listUser", "-c", CLUSTER),
    ("createAcl", *OF_ALICE, "-r", "Topic:Alpha,Group:rea*", "-a", "Pub,Sub", "-d", "Allow"),
    ("createAcl", *OF_ALICE, "-r", "Topic:Beta", "-a", "All", "-d", "Deny", "-i", "127.0.0.1,10.0.0.0/8"),
    ("createAcl", *OF_ALICE, "-r", "Topic:Beta", "-a", "Any", "-d", "Allow"),
    ("createAcl", *OF_ALICE, "-r", "Topic:Beta", "-a", "Pub", "-d", "Allow", "-i", "10.0.0.300"),
    ("createAcl", "-b", BROKER, "-s", "User:unknown", "-r", "Topic:Beta", "-a", "Pub", "-d", "Allow"),
    ("getAcl", *OF_ALICE),
    ("updateAcl", *OF_ALICE, "-r", "Topic:Alpha", "-a", "Sub,Get", "-d", "Deny"),
    ("getAcl", *OF_ALICE),
    ("getAcl", "-b", BROKER, "-s", "User:unknown"),
    ("listAcl", "-b", BROKER),
    ("listAcl", "-c", CLUSTER, "-s", "User:al"),
    ("listAcl", "-b", BROKER, "-r", "Alpha"),
    ("deleteAcl", *OF_ALICE, "-r", "Topic:Beta"),
    ("getAcl", *OF_ALICE),
    ("deleteAcl", *OF_ALICE),
    ("getAcl", *OF_ALICE),
    ("deleteAcl", *OF_ALICE),
    ("deleteUser", *ALICE),
    ("deleteUser", "-b", BROKER, "-u", "boss"),
    ("getUser", *ALICE),
    ("listUser", "-b", BROKER),
)
COMMANDS: Final = {PLAIN: PLAIN_COMMANDS, AUTH: AUTH_COMMANDS}
REFUSED: Final = {
    PLAIN: ("updateAclConfig", "-b", BROKER, "-a", "newcomer", "-s", SECRET),
    AUTH: ("createUser", "-b", BROKER, "-u", "mallory", "-p", SECRET),
}

COPIED: Final = ("publisher", "denied-by-prefix", "from-here")
TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
OWN: Final = re.compile(r"\tat .*\n|(?<=PlainAccessConfig)@\w+")
"""Stack traces, and the identities of Java objects."""
ACCOUNT: Final = re.compile(r"org\.apache\.rocketmq\.common\.PlainAccessConfig")
USAGE_ERRORS: Final = (("updateUser", *ALICE, "-p", "87654321", "-s", "disable"),)
"""Options that exclude each other in RocketMQ's tool. Ours takes both."""
VERSION: Final = re.compile(r"(?<=plain_acl.yml) +\d+ +")
"""The number of changes of the file, which the second run goes on counting."""
FRAME: Final = re.compile(r"(AclException: .*), \S+", re.MULTILINE)
"""The end of a remark of 4.9 is a line of Java code."""

pytestmark = pytest.mark.interop


class Pair:
    """RocketMQ's own broker and Skylark, and the mqadmin that manages both."""

    def __init__(self, generation: str, homes: dict[str, Path], brokers: dict[str, BrokerUnderTest]) -> None:
        self.generation = generation
        self.official, self.skylark = brokers
        self.homes = homes
        self.brokers = brokers
        self.mqadmin = MqadminProcess(
            generation, homes[SKYLARK] / "mqadmin", brokers[SKYLARK].namesrv, ADMINISTRATOR[generation]
        )

    def __repr__(self) -> str:
        return f"<Pair {self.generation}>"

    def outputs(self, kind: str, commands: Sequence[Command]) -> list[str]:
        """Return the outputs of commands against a broker, without its address, its directory, and times."""
        broker = self.brokers[kind]
        lines = []
        for name, *arguments in commands:
            words = [broker.broker_address if word == BROKER else word for word in arguments]
            lines.append(self._masked(kind, self.mqadmin.run(name, *words, "-n", broker.namesrv).text))
        return lines

    def outputs_of_ours(self, kind: str, commands: Sequence[Command]) -> list[tuple[int, str, str]]:
        """Return the exit codes and outputs of our mqadmin for the same commands, on stdout and stderr."""
        broker = self.brokers[kind]
        results = []
        for name, *arguments in commands:
            words = [broker.broker_address if word == BROKER else word for word in arguments]
            out, err = io.StringIO(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(err):
                code = run([name, *words, "-n", broker.namesrv])
            results.append((code, self._masked(kind, out.getvalue()), err.getvalue()))
        return results

    def _masked(self, kind: str, text: str) -> str:
        text = text.replace(self.brokers[kind].broker_address, BROKER).replace(str(self.homes[kind]), "<home>")
        return FRAME.sub(r"\1", OWN.sub("", TIME.sub("<time>", text)))


@pytest.fixture(scope="module", params=[PLAIN, AUTH])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    generation: str = request.param
    kinds = (f"apache-{generation}", SKYLARK)
    homes = {kind: tmp_path_factory.mktemp(kind) for kind in kinds}
    with ExitStack() as stack:
        brokers = {kind: stack.enter_context(guarded_broker(kind, generation, homes[kind])) for kind in kinds}
        pair = Pair(generation, homes, brokers)
        stack.callback(pair.mqadmin.stop)
        yield pair


@pytest.fixture(autouse=True)
def report_commands_run(request: pytest.FixtureRequest) -> Iterator[None]:
    """Attach the commands that a test has run to its report."""
    yield
    if "pair" in request.fixturenames:
        mqadmin = request.getfixturevalue("pair").mqadmin
        facts = [(TRIED, mqadmin.version, command) for command in sorted(mqadmin.commands_run)]
        request.node.user_properties.append((FACTS, facts))


def test_mqadmin_prints_the_same_as_with_rocketmqs_broker(pair: Pair) -> None:
    """Accounts, users and policies are created, changed, listed and deleted; wrong values get the same errors."""
    commands = COMMANDS[pair.generation]
    expected = pair.outputs(pair.official, commands)
    found = pair.outputs(pair.skylark, commands)
    for command, ours, theirs in zip(commands, found, expected, strict=True):
        assert ours == theirs, " ".join(command)


def test_our_mqadmin_prints_the_same_as_rocketmqs(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both brokers, after the same commands. Where RocketMQ's tool fails or finds nothing, ours prints one line."""
    monkeypatch.setenv("ROCKETMQ_HOME", str(pair.mqadmin.home))
    commands = [command for command in COMMANDS[pair.generation] if command not in USAGE_ERRORS]
    for kind in (pair.official, pair.skylark):
        expected = pair.outputs(kind, commands)
        for command, theirs, (code, out, err) in zip(
            commands, expected, pair.outputs_of_ours(kind, commands), strict=True
        ):
            if "Exception" in theirs or not theirs:
                assert (code != 0, out, err.count("\n")) == (True, "", 1), (command, theirs, err)
                assert SECRET not in err
            else:
                assert (code, err) == (0, ""), command
                assert VERSION.sub("<version>", out) == VERSION.sub("<version>", shown(command, theirs)), command


def shown(command: Command, output: str) -> str:
    """Return the output with the name of the account instead of a Java object."""
    name = command[command.index("-a") + 1] if "-a" in command else ""
    return ACCOUNT.sub(f"account's accesskey is:{name}", output)


def test_mqadmin_without_rights_is_refused(pair: Pair) -> None:
    """With the wrong secret, an unknown key, or an account that has no rights, the output is that of RocketMQ."""
    administrator = ADMINISTRATOR[pair.generation]
    command = REFUSED[pair.generation]
    wrong = (administrator._replace(secret_key="no-secret"), Credentials("unknown-user", SECRET))
    # 4.9 leaves this request to every account; Skylark does not (aclStrict).
    powerless = () if pair.generation == PLAIN else (Credentials("without-policies", SECRET),)
    try:
        for credentials in (*wrong, *powerless):
            pair.mqadmin.sign_with(credentials)
            [expected] = pair.outputs(pair.official, [command])
            assert "DESC" in expected
            assert pair.outputs(pair.skylark, [command]) == [expected]
    finally:
        pair.mqadmin.sign_with(administrator)


def test_users_and_policies_are_copied_in_both_directions(pair: Pair) -> None:
    """copyUser and copyAcl: the copies are those of the original, and the users work with their passwords."""
    if pair.generation == PLAIN:
        return
    for source, target in ((pair.official, pair.skylark), (pair.skylark, pair.official)):
        between = ("-f", pair.brokers[source].broker_address, "-t", pair.brokers[target].broker_address)
        for user in COPIED:
            pair.outputs(target, [("deleteUser", "-b", BROKER, "-u", user)])
        copied = pair.mqadmin.run("copyUser", *between, "-u", ",".join(COPIED))
        assert copied.text.count("success") == len(COPIED), copied.text
        copied = pair.mqadmin.run("copyAcl", *between, "-s", ",".join(f"User:{user}" for user in COPIED))
        assert copied.text.count("success") == len(COPIED), copied.text
        shown: list[Command] = [("getUser", "-b", BROKER, "-u", user) for user in COPIED]
        shown += [("getAcl", "-b", BROKER, "-s", f"User:{user}") for user in COPIED]
        assert pair.outputs(target, shown) == pair.outputs(source, shown)
        assert_as_recorded(AUTH, pair.brokers[target])


def test_the_file_of_accounts_is_exchanged(pair: Pair, tmp_path: Path) -> None:
    """plain_acl.yml, written by the one broker after requests, gives the accounts the same rights in the other."""
    if pair.generation == AUTH:
        return
    for writer, reader in ((pair.official, pair.skylark), (pair.skylark, pair.official)):
        rights = {"topicPerms": "Alpha=PUB|SUB,Beta=DENY", "groupPerms": "readers=SUB"}
        pair.brokers[writer].call(50, {"accessKey": "exchanged", "secretKey": SECRET, "admin": False, **rights})
        written = acl_file(pair.homes[writer]).read_text()
        with guarded_broker(reader, PLAIN, tmp_path / reader, acl=written) as broker:
            assert_as_recorded(PLAIN, broker)
            exchanged = Caller("exchanged", Credentials("exchanged", SECRET))
            with exchanged.client(port_of(broker)) as client:
                sent = {topic: client.call(10, {**REQUESTS[0].ext, "topic": topic}).code for topic in ("Alpha", "Beta")}
            assert sent == {"Alpha": 0, "Beta": 1}
            [counter] = re.findall(r"counter: (\d+)", written)
            # RocketMQ itself shows this number only after it has read its own change back.
            assert json.loads(broker.call(52).ext["version"])["counter"] == int(counter)


def assert_as_recorded(generation: str, broker: BrokerUnderTest) -> None:
    """Assert that sends and pulls by every account have the recorded responses."""
    requests = [request for request in REQUESTS if request.name in ("SEND_MESSAGE", "PULL_MESSAGE")]
    table = recorded(generation)
    found = responses(generation, port_of(broker), requests)
    for request in requests:
        codes = {caller: cell.code for caller, cell in found[request.name].items()}
        assert codes == {caller: cell.code for caller, cell in table[request.name].items()}
