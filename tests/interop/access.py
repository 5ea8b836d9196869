"""Brokers with access control, of either generation, with the accounts of tests/harness/access_table.py.

`generation` is the version of RocketMQ whose access control the broker has: 4.9.7 (plain_acl.yml) or 5.3.3 (users and
policies). RocketMQ's own brokers have one generation each, Skylark has both.

`python -m tests.interop.access` records the responses of RocketMQ's brokers in tests/golden/access.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.harness.access_table import (
    ADMINISTRATOR,
    AUTH,
    PLAIN,
    PROVIDERS,
    SECRET,
    SETTINGS,
    encoded,
    plain_acl,
    policies,
    prepare,
    record,
    responses,
)
from tests.harness.raw import Credentials
from tests.interop.brokers import BrokerUnderTest, running_broker

SKYLARK = "skylark"
UPDATE_AND_CREATE_ACL_CONFIG, AUTH_CREATE_USER, AUTH_CREATE_ACL = 50, 3001, 3006
CLIENT_ACTIONS = ("Pub", "Sub", "Get")
"""What official clients need of a topic and a group in 5.3. Some of them query the offsets of queues, which is Get."""


def generations(broker_kind: str) -> tuple[str, ...]:
    """Return the generations that a broker has."""
    return (PLAIN, AUTH) if broker_kind == SKYLARK else (broker_kind.removeprefix("apache-"),)


@contextmanager
def guarded_broker(
    kind: str, generation: str, home: Path, settings: Mapping[str, object] | None = None, acl: str | None = None
) -> Iterator[BrokerUnderTest]:
    """Start a broker with access control and the accounts, and stop it on exit. `acl`: the text of plain_acl.yml."""
    if generation == PLAIN:
        acl_file(home).parent.mkdir(parents=True)
        acl_file(home).write_text(acl or plain_acl())
    own = {"aclConfigDir": acl_file(home).parent} if kind == SKYLARK else PROVIDERS[generation]
    needed = {"brokerName": "broker-a", **SETTINGS[generation], **own}
    with running_broker(kind, home, needed | dict(settings or {}), credentials=ADMINISTRATOR[generation]) as broker:
        prepare(generation, port_of(broker))
        yield broker


def add_account(broker: BrokerUnderTest, generation: str, name: str, topic: str, group: str) -> Credentials:
    """Create an account that may send to a topic, and consume it in a group. Return its keys."""
    if generation == PLAIN:
        permissions = {"topicPerms": f"{topic}=PUB|SUB", "groupPerms": f"{group}=SUB"}
        account = {"accessKey": name, "secretKey": SECRET, "admin": False, **permissions}
        broker.call(UPDATE_AND_CREATE_ACL_CONFIG, account)
    else:
        broker.call(AUTH_CREATE_USER, {"username": name}, encoded({"password": SECRET}))
        rights = policies(f"Topic:{topic}", f"Group:{group}", actions=CLIENT_ACTIONS)
        broker.call(AUTH_CREATE_ACL, {"subject": f"User:{name}"}, rights)
    return Credentials(name, SECRET)


def acl_file(home: Path) -> Path:
    return home / "conf" / "plain_acl.yml"


def port_of(broker: BrokerUnderTest) -> int:
    return int(broker.broker_address.rpartition(":")[2])


def main() -> None:
    for version in (PLAIN, AUTH):
        with (
            tempfile.TemporaryDirectory() as home,
            guarded_broker(f"apache-{version}", version, Path(home)) as broker,
        ):
            record(version, responses(version, port_of(broker)))


if __name__ == "__main__":
    main()
