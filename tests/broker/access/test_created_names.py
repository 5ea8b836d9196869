"""Quotas on the topics and groups that an account creates."""

import msgspec
import pytest

from skylarkmq.broker.access.caller import Caller, Proof
from skylarkmq.broker.access.config import QuotaConfig
from skylarkmq.broker.access.created_names import CreatedNames, decode
from skylarkmq.broker.access.quota_refusals import Refusals
from skylarkmq.broker.access.requests.table import requirement_of
from skylarkmq.broker.metadata.subscription_groups import GroupsConfig, SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicsConfig, TopicTable
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from tests.harness.peer import Peer


class Tables:
    """A table of topics and one of groups, whose creations are counted."""

    def __init__(self, **settings: int) -> None:
        self.created = CreatedNames(QuotaConfig(**settings), Refusals())
        config = TopicsConfig(cluster_name="Cluster", broker_name="broker")
        self.topics = TopicTable(config, lambda: 0, creations=self.created.topics)
        self.groups = SubscriptionGroups(GroupsConfig(), lambda: 0, creations=self.created.groups)
        self.topics.on_delete(self.created.topics.forget)
        self.groups.on_delete(self.created.groups.forget)
        self.topics.load(None)
        self.groups.load(None)

    def as_account(self, account: str) -> None:
        """Let the next creations belong to the request of an account."""
        command = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC)
        connection = Peer(Dispatcher()).connection
        self.created.check(connection, command, requirement_of(17), Caller(account, Proof.SIGNATURE))

    def create(self, *names: str) -> str:
        """Create topics; return the code and remark of a refusal, or nothing."""
        try:
            self.topics.update_all([TopicConfig(name) for name in names])
        except RequestError as error:
            return f"{error.code.name}: {error.remark}"
        return ""


async def test_an_account_may_create_its_number_of_topics() -> None:
    """One more is refused and not created; changes and deletions are not affected; other accounts have their own."""
    tables = Tables(quota_account_topics=2)
    tables.as_account("alice")
    assert tables.create("A", "B") == ""
    refusal = tables.create("C")
    assert refusal.startswith("SYSTEM_BUSY: [OVERLOAD]")
    assert refusal.endswith("quotaAccountTopics=2 of account alice")
    assert tables.topics.find("C") is None
    assert tables.topics.update(TopicConfig("A", 2, 2))
    tables.as_account("bob")
    assert tables.create("C") == ""
    tables.topics.delete("A")  # by another account
    tables.as_account("alice")
    assert tables.create("A") == ""
    assert tables.create("D") != ""


async def test_a_list_of_topics_is_created_as_a_whole_or_not_at_all() -> None:
    """The number of new ones counts."""
    tables = Tables(quota_account_topics=2)
    tables.as_account("alice")
    assert tables.create("A", "B", "C") != ""
    assert tables.topics.find("A") is None


async def test_topics_that_sends_create_count_and_those_of_groups_do_not() -> None:
    """A retry topic belongs to its group."""
    tables = Tables(quota_account_topics=1)
    tables.as_account("alice")
    tables.topics.create_for_group("%RETRY%G")
    tables.topics.create_for_group("%DLQ%G")
    assert tables.topics.create_from_template("A", "TBW102", 4) is not None
    with pytest.raises(RequestError):
        tables.topics.create_from_template("B", "TBW102", 4)


async def test_an_account_may_create_its_number_of_groups() -> None:
    """By a heartbeat or pull; requests without an account have no quota."""
    tables = Tables(quota_account_groups=1)
    tables.as_account("alice")
    assert tables.groups.find_or_create("G1") is not None
    assert tables.groups.find_or_create("G1") is not None
    with pytest.raises(RequestError, match="quotaAccountGroups=1 of account alice"):
        tables.groups.find_or_create("G2")
    tables.as_account("")
    assert tables.groups.find_or_create("G2") is not None
    tables.groups.delete("G1")
    tables.as_account("alice")
    assert tables.groups.find_or_create("G3") is not None


async def test_the_table_survives_a_restart() -> None:
    """Each change has it saved; names that no longer exist are dropped after loading."""
    tables = Tables(quota_account_topics=2, quota_account_groups=2)
    changes: list[bytes] = []
    tables.created.on_change(lambda: changes.append(tables.created.encode()))
    tables.as_account("alice")
    tables.create("A", "B")
    tables.groups.find_or_create("G")
    assert len(changes) == 3
    again = Tables(quota_account_topics=2)
    again.created.load(changes[-1])
    again.created.keep_existing(lambda name: name == "A", lambda name: name == "G")
    assert decode(again.created.encode()) == {"topics": {"A": "alice"}, "groups": {"G": "alice"}}
    again.as_account("alice")
    assert again.create("C") == ""
    assert again.create("D") != ""


@pytest.mark.parametrize("data", [b"", b"[]", b'{"topics":{"A":1}}', b'{"topics":["A"]}'])
def test_a_damaged_file_is_an_error(data: bytes) -> None:
    """The saver then loads the backup."""
    with pytest.raises(msgspec.DecodeError):
        CreatedNames(QuotaConfig(), Refusals()).load(data)
