"""The group table: predefined groups, groups created at first use, the file."""

from pathlib import Path

import msgspec
import pytest

from skylarkmq.broker.metadata.subscription_groups import GroupsConfig, SubscriptionGroups
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from tests.harness.stores import Clock, golden_manifest, unpack_golden

PREDEFINED = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)


def table(data: bytes | None = None, *, auto_create: bool = True) -> SubscriptionGroups:
    groups = SubscriptionGroups(GroupsConfig(auto_create_subscription_group=auto_create), Clock())
    groups.load(data)
    return groups


def test_system_groups_exist_from_the_start() -> None:
    """RocketMQ's predefined groups, with all permissions."""
    groups = table()
    assert tuple(group.group_name for group in groups) == PREDEFINED
    assert all(group.consume_enable and group.consume_broadcast_enable for group in groups)


def test_a_group_is_created_at_first_use() -> None:
    """With default settings and one change; afterwards the same object is returned."""
    groups = table()
    changes: list[int] = []
    groups.on_change(lambda: changes.append(groups.version.counter))
    assert groups.find("g") is None
    group = groups.find_or_create("g")
    assert group == SubscriptionGroupConfig("g")
    assert groups.find_or_create("g") is group is groups.find("g")
    assert changes == [1]


@pytest.mark.parametrize("name", ["", " ", "a b", "#", "x" * 256])
def test_an_invalid_name_creates_no_group(name: str) -> None:
    """Blank names, invalid characters and more than 255 characters."""
    assert table().find_or_create(name) is None


def test_without_auto_creation_only_system_groups_are_created() -> None:
    """autoCreateSubscriptionGroup=false leaves groups to operators, except CID_RMQ_SYS_ ones."""
    groups = table(auto_create=False)
    assert groups.find_or_create("g") is None
    assert groups.find_or_create("CID_RMQ_SYS_NEW") is not None
    assert groups.find_or_create("TOOLS_CONSUMER") is not None


def test_the_file_keeps_settings_and_prohibitions() -> None:
    """Written data is read again: settings of a group, and topics it may not read (bit 4)."""
    wrapper = SubscriptionGroupWrapper(
        forbidden_table={"g": {"closed": 4, "open": 3}},
        subscription_group_table={"g": SubscriptionGroupConfig("g", consume_enable=False, retry_max_times=3)},
    )
    groups = table(table(wrapper.encode()).encode())
    group = groups.find("g")
    assert group is not None
    assert (group.consume_enable, group.retry_max_times) == (False, 3)
    assert not groups.may_read("g", "closed")
    assert groups.may_read("g", "open")
    assert groups.may_read("g", "other")
    assert groups.may_read("other", "closed")


def test_the_file_of_4_9_8_is_read_and_written_back(tmp_path: Path) -> None:
    """RocketMQ's own subscriptionGroup.json loads with every group, and our encoding of it is equal."""
    data = (unpack_golden("4.9.8", tmp_path) / "config" / "subscriptionGroup.json").read_bytes()
    expected = golden_manifest("4.9.8")["config"]["subscriptionGroup.json"]
    for groups in (table(data), table(table(data).encode())):
        for name, config in expected["subscriptionGroupTable"].items():
            group = groups.find(name)
            assert group is not None
            assert config.items() <= msgspec.to_builtins(group).items()


def test_an_operator_changes_and_deletes_a_group() -> None:
    """Each is a change of the table, unless nothing changes; a deleted group's prohibitions are removed."""
    wrapper = SubscriptionGroupWrapper(forbidden_table={"g": {"closed": 4}})
    groups = table(wrapper.encode())
    gone: list[str] = []
    groups.on_delete(gone.append)
    before = groups.statistics().version
    assert groups.update(SubscriptionGroupConfig("g", retry_max_times=3))
    assert not groups.update(SubscriptionGroupConfig("g", retry_max_times=3))
    assert groups.find("g") == SubscriptionGroupConfig("g", retry_max_times=3)
    assert groups.delete("g")
    assert not groups.delete("g")
    assert (groups.find("g"), groups.may_read("g", "closed"), gone) == (None, True, ["g"])
    assert groups.statistics().version == before + 2
