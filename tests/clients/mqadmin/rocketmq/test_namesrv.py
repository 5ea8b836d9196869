"""Commands about name servers."""

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker, free_ports
from tests.clients.mqadmin.conftest import RunCommand


def test_settings_are_changed_and_printed(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """Of each name server; those of -n are named in the output, as by RocketMQ's tool."""
    changed = mqadmin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    assert changed == (0, "update name server config success!\norderMessageEnable : true\n", "")
    named = mqadmin("updateNamesrvConfig", "-n", broker.namesrv, "-k", "orderMessageEnable", "-v", "false")
    assert named.out == f"update name server config success![{broker.namesrv}]\norderMessageEnable : false\n"
    shown = mqadmin("getNamesrvConfig")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"============{broker.namesrv}============\n")
    assert f"{'orderMessageEnable':50}=  false" in shown.out.splitlines()


def test_queue_numbers_of_ordered_topics_are_set_printed_and_deleted(mqadmin: RunCommand) -> None:
    """In the namespace of ordered topics; none is exit code 2."""
    arguments = ("updateOrderConf", "-t", "Ordered", "-m")
    assert mqadmin(*arguments, "put", "-v", "broker-a:4") == (
        0,
        "update orderConf success. topic=[Ordered], orderConf=[broker-a:4]",
        "",
    )
    assert mqadmin(*arguments, "get").out == "get orderConf success. topic=[Ordered], orderConf=[broker-a:4] "
    assert mqadmin(*arguments, "delete").out == "delete orderConf success. topic=[Ordered]"
    missing = mqadmin(*arguments, "get")
    assert (missing.code, missing.out, missing.err.count("\n")) == (2, "", 1)
    assert mqadmin(*arguments, "put").code == 1
    assert mqadmin(*arguments, "swap").err == "mqadmin: -m must be put, get or delete, not swap.\n"


def test_keys_and_values_are_set_and_deleted(mqadmin: RunCommand) -> None:
    """Seen by a command that reads the namespace."""
    order = ("-s", "ORDER_TOPIC_CONFIG", "-k", "Kept")
    assert mqadmin("updateKvConfig", *order, "-v", "x:1").out == "create or update kv config to namespace success.\n"
    assert "orderConf=[x:1]" in mqadmin("updateOrderConf", "-t", "Kept", "-m", "get").out
    assert mqadmin("deleteKvConfig", *order).out == "delete kv config from namespace success.\n"
    assert mqadmin("updateOrderConf", "-t", "Kept", "-m", "get").code == 2
    assert mqadmin("deleteKvConfig", *order).code == 0


@pytest.mark.parametrize(("command", "verb"), [("wipeWritePerm", "wipe"), ("addWritePerm", "add")])
def test_the_write_permission_of_a_broker_changes(
    mqadmin: RunCommand, broker: InProcessBroker, command: str, verb: str
) -> None:
    """On each name server; one that cannot be reached is a line, and the others are changed."""
    result = mqadmin(command, "-b", "broker-a")
    assert result.code == 0
    assert result.out.startswith(f"{verb} write perm of broker[broker-a] in name server[{broker.namesrv}] OK, ")
    (port,) = free_ports(1)
    partly = mqadmin(command, "-b", "broker-a", "-n", f"127.0.0.1:{port};{broker.namesrv}")
    assert (partly.code, partly.err.count("\n")) == (3, 1)
    assert [line.rpartition("] ")[2].partition(",")[0] for line in partly.out.splitlines()] == ["Failed", "OK"]


def test_a_change_that_one_name_server_misses_fails(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """The others are changed: exit code 3."""
    (port,) = free_ports(1)
    both = f"127.0.0.1:{port};{broker.namesrv}"
    result = mqadmin("updateKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "Partly", "-v", "y:2", "-n", both)
    assert (result.code, result.out, result.err.count("\n")) == (3, "", 1)
    assert "orderConf=[y:2]" in mqadmin("updateOrderConf", "-t", "Partly", "-m", "get").out
