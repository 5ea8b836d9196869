"""Migration of 4.9's accounts, as RocketMQ 5.3.3's `AuthMigrator` does it."""

from pathlib import Path

import pytest

from skylarkmq.broker.access.auth.migration import PlainAccount, migrate, plain_accounts
from skylarkmq.broker.access.auth.policies import Acls
from skylarkmq.broker.access.auth.users import User, Users, UserType
from skylarkmq.broker.base.errors import StartError

ADMIN = PlainAccount("rocketmq2", "12345678", is_admin=True)
CLIENT = PlainAccount(
    "RocketMQ",
    "87654321",
    default_topic_permission="DENY",
    default_group_permission=" SUB ",
    topic_rules=("topicA=DENY", "topicB=PUB|SUB", " topicC = SUB", "topicD=SOME", "wrong", "a=b=c"),
    group_rules=("groupA=DENY", "%RETRY%groupB=SUB|PUB", "groupC=PUB"),
)


def tables(*known: User) -> tuple[Users, Acls]:
    users = Users(known)
    acls = Acls(users)
    users.load(None)
    return users, acls


def test_accounts_become_users_with_policies() -> None:
    """Permissions become actions; DENY and unknown texts deny everything."""
    users, acls = tables()
    assert migrate([ADMIN, CLIENT], users, acls) == 2
    assert users.matching("") == [User("RocketMQ", "87654321"), User("rocketmq2", "12345678", UserType.SUPER)]
    assert acls.find("User:rocketmq2") is None
    info = acls.find("User:RocketMQ")
    assert info is not None
    assert {
        policy.policy_type: [f"{one.resource} {','.join(one.actions)} {one.decision}" for one in policy.entries]
        for policy in info.policies
    } == {
        "Custom": [
            "Topic:topicA All Deny",
            "Topic:topicB Pub,Sub Allow",
            "Topic:topicC Sub Allow",
            "Topic:topicD All Deny",
            "Group:groupA All Deny",
            "Group:groupB Pub,Sub Allow",
            "Group:groupC Pub Allow",
        ],
        "Default": ["Topic:* All Deny", "Group:* Sub Allow"],
    }


def test_known_users_are_left_as_they_are() -> None:
    """A second start migrates nothing, and a changed password stays."""
    users, acls = tables(User("RocketMQ", "changed"))
    assert migrate([ADMIN, CLIENT], users, acls) == 1
    assert migrate([ADMIN, CLIENT], users, acls) == 0
    assert users.find("RocketMQ") == User("RocketMQ", "changed")
    assert acls.matching("", "") == []


def test_an_invalid_account_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """The log names it, without its secret."""
    users, acls = tables()
    assert migrate([PlainAccount("u" * 300, "secret-1"), PlainAccount("noPassword", " "), ADMIN], users, acls) == 1
    assert "password can not be blank" in caplog.text
    assert "secret-1" not in caplog.text + repr(PlainAccount("u", "secret-1"))


def test_the_accounts_of_all_files(tmp_path: Path) -> None:
    """In the order of the files; numbers count as texts."""
    (tmp_path / "acl" / "more").mkdir(parents=True)
    (tmp_path / "acl" / "more" / "b.yaml").write_text("accounts:\n- accessKey: second2\n  secretKey: 12345678\n")
    first = "{accessKey: first11, secretKey: abcdefgh, admin: true, topicPerms: ['a=PUB'], groupPerms: ['g=SUB']}"
    (tmp_path / "acl" / "a.yml").write_text(f"accounts:\n- {first}\n")
    (tmp_path / "plain_acl.yml").write_text("accounts:\n- {accessKey: third33, secretKey: s, defaultTopicPerm: PUB}\n")
    assert plain_accounts(tmp_path) == [
        PlainAccount("first11", "abcdefgh", is_admin=True, topic_rules=("a=PUB",), group_rules=("g=SUB",)),
        PlainAccount("second2", "12345678"),
        PlainAccount("third33", "s", default_topic_permission="PUB"),
    ]


def test_a_directory_without_files_has_no_accounts(tmp_path: Path) -> None:
    """Nothing is created there."""
    assert plain_accounts(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["accounts: [*secret]", "accounts: secret", "accounts: [secret]", "- secret"])
def test_a_file_with_an_error_prevents_the_start(tmp_path: Path, text: str) -> None:
    """The error names the setting and the file, without the content."""
    (tmp_path / "plain_acl.yml").write_text(text)
    with pytest.raises(StartError, match=r"^migrateAuthFromV1Enabled=true: .*plain_acl\.yml: ") as raised:
        plain_accounts(tmp_path)
    assert "secret" not in str(raised.value)
