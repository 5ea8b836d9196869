"""Subscription groups: changes, what their responses wait for, and deletion."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.processors.admin.group import changed_attributes
from skylarkmq.protocol.bodies.subscription_group import (
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.consumer import DeleteGroupHeader, GroupHeader
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, pull
from tests.harness.golden import transcripts


class Admin(BrokerParts):
    """Parts with requests about groups; `saves` and `offset_saves` count the waits for the disk."""

    @property
    def saves(self) -> int:
        return self.waits.count("groups")

    @property
    def offset_saves(self) -> int:
        return self.waits.count("offsets")

    async def set(self, **fields: Any) -> RemotingCommand:
        body = SubscriptionGroupConfig(**{"group_name": GROUP} | fields).encode()
        command = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        return await self.peer().call_and_wait(command)

    async def delete(self, **ext: str) -> RemotingCommand:
        command = RemotingCommand.request(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroupHeader(GROUP))
        command.ext = {"groupName": GROUP} | ext
        return await self.peer().call_and_wait(command)


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    it = Admin(tmp_path)
    yield it
    it.store.close()


async def test_a_group_is_created_and_changed(admin: Admin) -> None:
    """The change is on disk before the response; a request that changes nothing is not saved."""
    response = await admin.set(retry_max_times=3)
    assert (response.code, response.remark, bytes(response.body)) == (0, None, b"")
    assert admin.groups.find(GROUP) == SubscriptionGroupConfig(GROUP, retry_max_times=3)
    assert (await admin.set(retry_max_times=3)).code == 0
    assert admin.saves == 1
    await admin.set(consume_enable=False)
    assert admin.saves == 2


async def test_fixed_subscriptions_are_kept(admin: Admin) -> None:
    """RocketMQ's proxy stores them in the configuration of a group; the broker does not act on them."""
    fixed = [SimpleSubscriptionData("T", "TAG", "a || b", 7)]
    assert (await admin.set(subscription_data_set=fixed)).code == 0
    assert admin.groups.find(GROUP) == SubscriptionGroupConfig(GROUP, subscription_data_set=fixed)


async def test_a_permission_takes_effect_with_the_next_pull(admin: Admin) -> None:
    """The pull is refused, with the forbiddenType of the group."""
    assert admin.peer().call(pull()).code == 19
    await admin.set(consume_enable=False)
    response = admin.peer().call(pull())
    assert (response.code, response.ext_fields()["forbiddenType"]) == (16, "2")


async def test_a_list_of_groups_is_set_in_one_request(admin: Admin) -> None:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225): one save for all; if one group is invalid, none is set."""
    groups = [SubscriptionGroupConfig("a", retry_max_times=1), SubscriptionGroupConfig("b")]
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    command = RemotingCommand.request(code, body=SubscriptionGroupList(groups).encode())
    assert (await admin.peer().call_and_wait(command)).code == 0
    assert (admin.groups.find("a"), admin.groups.find("b"), admin.saves) == (*groups, 1)
    groups = [SubscriptionGroupConfig("c"), SubscriptionGroupConfig(" ")]
    command = RemotingCommand.request(code, body=SubscriptionGroupList(groups).encode())
    response = admin.peer().call(command)
    assert (response.code, response.remark) == (29, "The specified group is blank.")
    assert admin.groups.find("c") is None


@pytest.mark.parametrize(
    ("member", "text"),
    [
        ("retryQueueNums", "1" * 400),
        ("retryQueueNums", str(2**31)),
        ("retryMaxTimes", str(-(2**31) - 1)),
        ("groupSysFlag", f'"{2**31}"'),
        ("consumeTimeoutMinute", "1" * 400),
        ("brokerId", str(2**63)),
        ("whichBrokerWhenConsumeSlowly", "1" * 400),
    ],
)
async def test_a_number_that_java_cannot_hold_is_refused(admin: Admin, member: str, text: str) -> None:
    """With SYSTEM_ERROR (1), as by RocketMQ; the remark names the member, and the group is not created."""
    body = b'{"groupName":"new","%b":%b}' % (member.encode(), text.encode())
    for code, sent in (
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, b'{"groupConfigList":[%b]}' % body),
    ):
        response = admin.peer().call(RemotingCommand.request(code, body=sent))
        assert response.code == 1
        assert member in (response.remark or "")
        assert len(response.remark or "") < 200
    assert admin.groups.find("new") is None


async def test_the_largest_numbers_are_stored(admin: Admin) -> None:
    """All of them, except for queues of the retry topic, which have the limit of every topic."""
    largest: dict[str, Any] = {"retry_max_times": 2**31 - 1, "broker_id": 2**63 - 1, "consume_timeout_minute": -(2**31)}
    assert (await admin.set(retry_queue_nums=4_096, **largest)).code == 0
    assert admin.groups.find(GROUP) == SubscriptionGroupConfig(GROUP, retry_queue_nums=4_096, **largest)
    body = SubscriptionGroupConfig(GROUP, retry_queue_nums=4_097).encode()
    refused = admin.peer().call(RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
    expected = f"[LIMIT]retry topic of group {GROUP} with 4097 queues, the limit is maxQueuesPerTopic=4096"
    assert (refused.code, refused.remark) == (2, expected)


async def test_groups_are_listed_and_returned(admin: Admin) -> None:
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201) returns the file's content; GET_SUBSCRIPTIONGROUP_CONFIG (352) creates its
    group."""
    await admin.set(retry_max_times=3)
    listed = admin.peer().call(RemotingCommand.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
    wrapper = SubscriptionGroupWrapper.decode(listed.body)
    assert wrapper.subscription_group_table[GROUP].retry_max_times == 3
    assert wrapper.data_version == admin.groups.version
    shown = admin.peer().call(RemotingCommand.request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader("new")))
    assert SubscriptionGroupConfig.decode(shown.body) == SubscriptionGroupConfig("new")
    assert admin.groups.find("new") is not None


async def test_an_unknown_group_is_an_error_without_automatic_creation(tmp_path: Path) -> None:
    """SUBSCRIPTION_GROUP_NOT_EXIST (26)."""
    admin = Admin(tmp_path, auto_create_subscription_group=False)
    response = admin.peer().call(RemotingCommand.request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader("new")))
    assert (response.code, response.remark) == (26, "No group in this broker")
    admin.store.close()


@pytest.mark.parametrize(
    ("ext", "kept"),
    [({}, 7), ({"cleanOffset": "false"}, 7), ({"cleanOffset": "true"}, None), ({"removeOffset": "true"}, None)],
)
async def test_a_deleted_group_loses_its_state(admin: Admin, ext: dict[str, str], kept: int | None) -> None:
    """Statistics are deleted, and offsets if either field requests it; topics stay."""
    admin.put(b"x")
    admin.peer().call(pull())
    admin.topics.create_for_group("%RETRY%G")
    admin.offsets.commit(GROUP, TOPIC, 0, 7)
    response = await admin.delete(**ext)
    assert (response.code, response.remark, admin.saves) == (0, None, 1)
    assert admin.groups.find(GROUP) is None
    assert (admin.offsets.committed(GROUP, TOPIC, 0), admin.offset_saves) == (kept, 1 if kept is None else 0)
    assert admin.pulls.deliveries.table() == {}
    assert admin.topics.find("%RETRY%G") is not None


async def test_deleting_an_unknown_group_succeeds(admin: Admin) -> None:
    """SUCCESS (0), and nothing is saved."""
    assert (await admin.delete()).code == 0
    assert admin.saves == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"priority.factor": "1"}),
        ({"+priority.factor": "2"}, {"priority.factor": "2"}),
        ({"priority.factor": "2"}, {"priority.factor": "2"}),
        ({"-priority.factor": ""}, {}),
    ],
)
def test_attributes_are_changed_by_sign(changes: dict[str, str], expected: dict[str, str]) -> None:
    """The same rules as for topics."""
    assert changed_attributes({"priority.factor": "1"}, changes) == expected


@pytest.mark.parametrize("name", ["+x", "-x", "x", ""])
def test_other_attributes_are_refused(name: str) -> None:
    """SYSTEM_ERROR (1) with the attribute's name."""
    with pytest.raises(RequestError, match=f"unsupported key: {name.lstrip('+-')}"):
        changed_attributes({}, {name: "1"})


async def test_requests_of_mqadmin_are_served(admin: Admin) -> None:
    """The captured requests of 4.9.8: a group created with three retries, and deleted with its offsets."""
    asked = {frame.header["code"]: frame for frame in transcripts() if frame.header["code"] in (200, 207)}
    made = RemotingCommand.request(200, body=asked[200].body)
    assert (await admin.peer().call_and_wait(made)).code == 0
    name = msgspec.json.decode(asked[200].body)["groupName"]
    group = admin.groups.find(name)
    assert group is not None
    assert group.retry_max_times == 3
    deleted = RemotingCommand.request(207)
    deleted.ext = asked[207].header["extFields"]
    assert (await admin.peer().call_and_wait(deleted)).code == 0
    assert admin.groups.find(name) is None


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("", "The specified group is blank."),
        (" ", "The specified group is blank."),
        ("g/../..", "The specified group contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a\nb", "The specified group contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a\0b", "The specified group contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("g" * 256, "The specified group is longer than group max length."),
    ],
)
async def test_a_group_needs_a_valid_name(admin: Admin, name: str, remark: str) -> None:
    """The retry topic, and so a directory, is named after the group; RocketMQ does not check the name."""
    before = admin.groups.encode()
    response = await admin.set(group_name=name)
    assert (response.code, response.remark) == (29, remark)
    assert (admin.groups.encode(), admin.saves) == (before, 0)
