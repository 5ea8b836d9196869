"""Files of accounts: reading, reloading after changes, errors, and changes by requests."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from skylarkmq.broker.access.plain_acl.addresses import address_of
from skylarkmq.broker.access.plain_acl.errors import AclError
from skylarkmq.broker.access.plain_acl.files import AclFiles, Version
from skylarkmq.broker.base.errors import StartError

NOW_MS = 1_700_000_000_000
OF_ROCKETMQ = """\
# a comment
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  groupPerms:
  - groupA=DENY
  note: kept
- accessKey: rocketmq2
  secretKey: 12345678
  admin: true
"""


def opened(directory: Path, text: str | None = None, **others: str) -> AclFiles:
    """Return the files of a directory, read once; `others`: files below `acl`."""
    if text is not None:
        (directory / "plain_acl.yml").write_text(text)
    for name, other in others.items():
        (directory / "acl").mkdir(exist_ok=True)
        (directory / "acl" / f"{name}.yml").write_text(other)
    files = AclFiles(directory, lambda: NOW_MS)
    files.open()
    return files


def account(access_key: str, **members: object) -> dict[str, Any]:
    return {"accessKey": access_key, "secretKey": "a-secret", **members}


def text_of(*accounts: dict[str, Any], **members: object) -> str:
    return yaml.safe_dump({"accounts": list(accounts), **members})


def content(directory: Path) -> Any:
    return yaml.safe_load((directory / "plain_acl.yml").read_text())


# --- reading ----------------------------------------------------------------------------------------------------------


def test_rocketmq_s_own_file_is_read(tmp_path: Path) -> None:
    """The example that RocketMQ is shipped with."""
    rules = opened(tmp_path, OF_ROCKETMQ).rules
    assert list(rules.accounts) == ["RocketMQ", "rocketmq2"]
    assert rules.is_white(address_of("10.10.103.7"))
    assert not rules.is_white(address_of("10.10.104.7"))
    assert rules.versions == {str(tmp_path / "plain_acl.yml"): Version(0, NOW_MS)}


def test_a_missing_file_is_created_empty_and_private(tmp_path: Path) -> None:
    """Together with its directory."""
    files = opened(tmp_path / "conf")
    assert (tmp_path / "conf" / "plain_acl.yml").read_text() == ""
    assert (tmp_path / "conf" / "plain_acl.yml").stat().st_mode & 0o777 == 0o600
    assert files.rules.accounts == {}
    assert files.rules.versions == {}
    assert files.rules.default_version == Version(0, NOW_MS)


def test_the_rules_are_those_of_all_files(tmp_path: Path) -> None:
    """Files in folders below `acl`, with both suffixes, and the default file; other files are not read."""
    (tmp_path / "acl" / "more").mkdir(parents=True)
    (tmp_path / "acl" / "more" / "b.yaml").write_text(text_of(account("account-b")))
    (tmp_path / "acl" / "c.txt").write_text(text_of(account("account-c")))
    one, other = text_of(globalWhiteRemoteAddresses=["1.1.1.1"]), text_of(globalWhiteRemoteAddresses=["2.2.2.2"])
    rules = opened(tmp_path, one, a=other).rules
    assert list(rules.accounts) == ["account-b"]
    assert rules.is_white(address_of("1.1.1.1"))
    assert rules.is_white(address_of("2.2.2.2"))


def test_files_mounted_by_kubernetes_are_read_once(tmp_path: Path) -> None:
    """A mounted file is a link through `..data` to a directory of its version; a new version is noticed."""
    for version, name in (("..2026_1", "account-1"), ("..2026_2", "account-2")):
        (tmp_path / "acl" / version).mkdir(parents=True)
        (tmp_path / "acl" / version / "a.yml").write_text(text_of(account(name)))
    (tmp_path / "acl" / "..data").symlink_to("..2026_1")
    (tmp_path / "acl" / "a.yml").symlink_to("..data/a.yml")
    files = opened(tmp_path)
    assert list(files.rules.accounts) == ["account-1"]
    assert list(files.rules.versions) == [str(tmp_path / "acl" / "a.yml")]
    (tmp_path / "acl" / "..data").unlink()
    (tmp_path / "acl" / "..data").symlink_to("..2026_2")
    assert [files.poll(), files.poll()] == [False, True]
    assert list(files.rules.accounts) == ["account-2"]


def test_the_first_file_defines_an_account(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files below `acl` come first, in the order of their paths; the log names the others."""
    first, second = account("account-1", admin=True), account("account-1")
    files = opened(tmp_path, text_of(second), a=text_of(first, second), b=text_of(second))
    assert files.rules.accounts["account-1"].is_admin
    paths = [tmp_path / "acl" / "b.yml", tmp_path / "plain_acl.yml"]
    expected = [
        f"account is defined in another file, too, and ignored here account=account-1 path={path}" for path in paths
    ]
    assert [record.message for record in caplog.records if "another file" in record.message] == expected


def test_rocketmq_s_tag_of_an_account_is_read(tmp_path: Path) -> None:
    """4.9.8 accepts the tag of its own type, and no other."""
    tag = "!!org.apache.rocketmq.common.PlainAccessConfig"
    rules = opened(tmp_path, f"accounts:\n- {tag} {{accessKey: account-1, secretKey: a-secret}}\n").rules
    assert list(rules.accounts) == ["account-1"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("accounts: [}", "not valid YAML: line 1, column 12"),
        ("accounts: *a-secret", "not valid YAML: line 1, column 11"),
        ("a: !!python/object:os.system a-secret", "not valid YAML: line 1, column 4"),
        ("a-secret", "the file must be a mapping"),
        ("accounts: a-secret", "accounts must be a list"),
        ("globalWhiteRemoteAddresses: 1.2.3.4", "globalWhiteRemoteAddresses must be a list"),
        ("globalWhiteRemoteAddresses: [1.2.3]", "Netaddress examine Exception netaddress is 1.2.3"),
        ("accounts: [{accessKey: short, secretKey: a-secret}]", "accessKey=short: accessKey and secretKey must be"),
        ("dataVersion: 5", "dataVersion must be a list of a counter and a timestamp"),
        ("[" * 100_000, "not valid YAML"),
    ],
)
def test_an_error_prevents_the_start_and_is_told_without_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, problem: str
) -> None:
    """The message names the file and the place."""
    with pytest.raises(StartError) as raised:
        opened(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path / 'plain_acl.yml'}: {problem}")
    assert "a-secret" not in str(raised.value) + caplog.text


def test_a_file_beyond_the_limit_is_an_error(tmp_path: Path) -> None:
    """SnakeYAML's limit."""
    with pytest.raises(StartError, match="the file exceeds 3145728 bytes"):
        opened(tmp_path, "#" * (3 << 20) + "\n")


# --- reloading --------------------------------------------------------------------------------------------------------


def test_a_changed_file_is_read_once_it_is_stable(tmp_path: Path) -> None:
    """Two polls must find the same file; a new object of rules makes the change visible."""
    files = opened(tmp_path, text_of(account("account-1")))
    before = files.rules
    (tmp_path / "plain_acl.yml").write_text("")
    assert not files.poll()
    (tmp_path / "plain_acl.yml").write_text(text_of(account("account-2")))
    assert not files.poll()
    assert files.rules is before
    assert files.poll()
    assert list(files.rules.accounts) == ["account-2"]
    assert not files.poll()


def test_new_and_deleted_files_are_noticed(tmp_path: Path) -> None:
    """Also a deleted default file."""
    files = opened(tmp_path, text_of(account("account-1")))
    (tmp_path / "acl").mkdir()
    (tmp_path / "acl" / "a.yml").write_text(text_of(account("account-2")))
    assert [files.poll(), files.poll()] == [False, True]
    assert set(files.rules.accounts) == {"account-1", "account-2"}
    (tmp_path / "plain_acl.yml").unlink()
    (tmp_path / "acl" / "a.yml").unlink()
    assert [files.poll(), files.poll()] == [False, True]
    assert files.rules.accounts == {}


def test_a_broken_file_keeps_its_rules_until_it_is_corrected(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The error is logged once; other files still change."""
    files = opened(tmp_path, text_of(account("account-1")), a=text_of(account("account-2")))
    (tmp_path / "plain_acl.yml").write_text("accounts: [")
    (tmp_path / "acl" / "a.yml").write_text(text_of(account("account-3")))
    assert [files.poll(), files.poll(), files.poll()] == [False, True, False]
    assert set(files.rules.accounts) == {"account-1", "account-3"}
    assert list(files.problems) == [tmp_path / "plain_acl.yml"]
    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1
    (tmp_path / "plain_acl.yml").write_text(text_of(account("account-4")))
    assert [files.poll(), files.poll()] == [False, True]
    assert set(files.rules.accounts) == {"account-4", "account-3"}
    assert files.problems == {}


HUGE = "0x" + "f" * 5_000
ODD_FILES = {
    "empty": b"",
    "blank": b" \n\n",
    "comment": b"# later\n",
    "null": b"~\n",
    "empty mapping": b"{}\n",
    "list": b"- accounts\n",
    "text": b"accounts\n",
    "number": b"5\n",
    "accounts a number": b"accounts: 5\n",
    "accounts of numbers": b"accounts: [1, 2]\n",
    "key too large for text": f"accounts: [{{accessKey: {HUGE}, secretKey: a-secret}}]\n".encode(),
    "secret too large for text": f"accounts: [{{accessKey: account-1, secretKey: {HUGE}}}]\n".encode(),
    "flag too large": f"accounts: [{{accessKey: account-1, secretKey: a-secret, admin: [{HUGE}]}}]\n".encode(),
    "address too large": f"globalWhiteRemoteAddresses: [{HUGE}]\n".encode(),
    "5,000 digits": b"accounts: [{accessKey: " + b"9" * 5_000 + b", secretKey: a-secret}]\n",
    "version too large": f"accounts: []\ndataVersion: [{{counter: {HUGE}, timestamp: 1}}]\n".encode(),
    "version below zero": f"accounts: []\ndataVersion: [{{counter: -{HUGE}, timestamp: 1}}]\n".encode(),
    "version of infinity": b"accounts: []\ndataVersion: [{counter: .inf, timestamp: .nan}]\n",
    "version a text": b"accounts: []\ndataVersion: later\n",
    "date": b"accounts: [{accessKey: 2026-01-01, secretKey: a-secret}]\n",
    "impossible date": b"accounts: [{accessKey: 2026-13-45, secretKey: a-secret}]\n",
    "float": b"accounts: [{accessKey: .inf, secretKey: a-secret}]\n",
    "set": b"accounts: !!set {a, b}\n",
    "binary": b"accounts: [{accessKey: !!binary AAAAAAAAAAAA, secretKey: a-secret}]\n",
    "code": b"accounts: !!python/object/apply:os.getpid []\n",
    "list as key": b"? [a, b]\n: c\n",
    "itself": b"accounts: &a [*a]\n",
    "deep": b"accounts: " + b"[" * 3_000 + b"]" * 3_000 + b"\n",
    "NUL": b"accounts:\0\n",
    "not UTF-8": b"accounts: \xff\xfe\n",
    "half a surrogate": b'accounts: [{accessKey: "account\\ud800", secretKey: "\\ud800\\ud800\\ud800\\ud800"}]\n',
    "permission of a list": b"accounts: [{accessKey: account-9, secretKey: a-secret, topicPerms: [[a]]}]\n",
    "white address": b"globalWhiteRemoteAddresses: [10.0.0.1-]\n",
}
"""Files that an editor, a template or an attacker might leave."""


@pytest.mark.parametrize("odd", ODD_FILES.values(), ids=ODD_FILES)
def test_no_content_of_a_file_ends_the_polls_or_changes_the_rules(
    tmp_path: Path, odd: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The rules stay until the file has accounts again; one line and `problems` name the file. `accounts: []` removes
    all accounts."""
    files = opened(tmp_path, text_of(account("account-1")))
    rules = files.rules
    (tmp_path / "plain_acl.yml").write_bytes(odd)
    assert [files.poll(), files.poll(), files.poll()] == [False, True, False]
    assert (set(files.rules.accounts), files.rules.white) == (set(rules.accounts), rules.white)
    assert list(files.problems) == [tmp_path / "plain_acl.yml"]
    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1
    assert "a-secret" not in caplog.text
    (tmp_path / "plain_acl.yml").write_text("accounts: []\n")
    assert [files.poll(), files.poll()] == [False, True]
    assert (files.rules.accounts, files.problems) == ({}, {})


def test_with_strict_secret_files_an_exposed_file_is_not_read(tmp_path: Path) -> None:
    """A new one gives no rules, a known one keeps its previous rules, until only its owner can read it."""
    default, later = tmp_path / "plain_acl.yml", tmp_path / "acl" / "a.yml"
    default.write_text(text_of(account("account-1")))
    default.chmod(0o600)
    files = AclFiles(tmp_path, lambda: NOW_MS, is_strict=True)
    files.open()
    later.parent.mkdir()
    later.write_text(text_of(account("account-2")))
    later.chmod(0o640)
    default.write_text(text_of(account("account-3")))
    default.chmod(0o604)
    assert [files.poll(), files.poll()] == [False, True]
    assert list(files.rules.accounts) == ["account-1"]
    problem = "other users can read this file with secrets (strictSecretFiles=true)"
    assert files.problems == dict.fromkeys((later, default), problem)
    for path in (later, default):
        path.chmod(0o600)
    assert [files.poll(), files.poll()] == [False, True]
    assert set(files.rules.accounts) == {"account-2", "account-3"}
    assert files.problems == {}
    default.chmod(0o644)
    with pytest.raises(StartError, match=r"plain_acl\.yml: other users can read this file with secrets"):
        AclFiles(tmp_path, lambda: NOW_MS, is_strict=True).open()


# --- changes ----------------------------------------------------------------------------------------------------------


def test_a_new_account_is_added_to_the_default_file(tmp_path: Path) -> None:
    """At the end, with the members in RocketMQ's order; the version counts the change."""
    files = opened(tmp_path, a=text_of(account("account-1")))
    files.set_account(account("account-2", admin=False, topicPerms=["T=PUB"]))
    assert (tmp_path / "plain_acl.yml").read_text() == (
        "accounts:\n- accessKey: account-2\n  secretKey: a-secret\n  admin: false\n  topicPerms:\n  - T=PUB\n"
        f"dataVersion:\n- counter: 1\n  timestamp: {NOW_MS}\n"
    )
    assert set(files.rules.accounts) == {"account-1", "account-2"}
    assert files.rules.default_version == Version(1, NOW_MS)
    assert not files.poll()


def test_a_changed_account_keeps_what_the_request_does_not_set(tmp_path: Path) -> None:
    """In its own file; unknown members stay, comments do not, and the account moves to the end, as in RocketMQ."""
    files = opened(tmp_path, OF_ROCKETMQ)
    os.chmod(tmp_path / "plain_acl.yml", 0o644)
    files.set_account(account("RocketMQ", admin=True, groupPerms=[]))
    assert content(tmp_path) == {
        "globalWhiteRemoteAddresses": ["10.10.103.*", "192.168.0.*"],
        "accounts": [
            {"accessKey": "rocketmq2", "secretKey": 12345678, "admin": True},
            {
                **account("RocketMQ", admin=True, groupPerms=[]),
                "whiteRemoteAddress": None,
                "defaultTopicPerm": "DENY",
                "defaultGroupPerm": "SUB",
                "topicPerms": ["topicA=DENY", "topicB=PUB|SUB"],
                "note": "kept",
            },
        ],
        "dataVersion": [{"counter": 1, "timestamp": NOW_MS}],
    }
    assert (tmp_path / "plain_acl.yml").stat().st_mode & 0o777 == 0o600
    assert files.rules.accounts["RocketMQ"].is_admin


def test_a_change_counts_on_from_the_version_in_the_file(tmp_path: Path) -> None:
    """As RocketMQ writes it."""
    files = opened(tmp_path, text_of(account("account-1"), dataVersion=[{"counter": 41, "timestamp": 5}]))
    assert files.rules.default_version == Version(41, 5)
    files.set_white(["1.2.3.4"], "")
    assert content(tmp_path)["dataVersion"] == [{"counter": 42, "timestamp": NOW_MS}]
    assert files.rules.default_version == Version(42, NOW_MS)


def test_a_deleted_account_is_gone_from_its_file(tmp_path: Path) -> None:
    """An account that is not there is not deleted."""
    files = opened(tmp_path, a=text_of(account("account-1"), account("account-2")))
    assert files.delete_account("account-1")
    assert not files.delete_account("account-1")
    assert list(files.rules.accounts) == ["account-2"]
    assert [each["accessKey"] for each in yaml.safe_load((tmp_path / "acl" / "a.yml").read_text())["accounts"]] == [
        "account-2"
    ]


def test_white_addresses_are_those_of_one_file_of_accounts(tmp_path: Path) -> None:
    """Of the default file, or of the named one; files that contain no accounts of ours cannot be named."""
    files = opened(tmp_path, "", a="")
    outside = tmp_path / "other.yml"
    outside.write_text("")
    assert files.set_white(["1.2.3.4"], "")
    assert files.set_white(["5.6.7.8", ""], str(tmp_path / "acl" / "a.yml"))
    for path in (str(outside), str(tmp_path / "acl" / ".." / "other.yml"), str(tmp_path), "plain_acl.yml"):
        assert not files.set_white(["9.9.9.9"], path)
    assert outside.read_text() == ""
    assert files.rules.is_white(address_of("1.2.3.4"))
    assert files.rules.is_white(address_of("5.6.7.8"))
    assert not files.rules.is_white(address_of("9.9.9.9"))


@pytest.mark.parametrize(
    "change",
    [
        lambda files: files.set_account(account("account-1", whiteRemoteAddress="1.2")),
        lambda files: files.set_white(["1.2"], ""),
    ],
)
def test_an_invalid_change_changes_nothing(tmp_path: Path, change: Any) -> None:
    """Neither the file nor the rules."""
    files = opened(tmp_path, text_of(account("account-1")))
    before, text = files.rules, (tmp_path / "plain_acl.yml").read_text()
    with pytest.raises(AclError, match=r"Netaddress examine Exception netaddress is 1\.2"):
        change(files)
    assert files.rules is before
    assert (tmp_path / "plain_acl.yml").read_text() == text


def test_a_broken_file_cannot_be_changed(tmp_path: Path) -> None:
    """A change would lose what is in it."""
    files = opened(tmp_path, text_of(account("account-1")))
    (tmp_path / "plain_acl.yml").write_text("accounts: [}")
    with pytest.raises(AclError, match="not valid YAML: line 1, column 12"):
        files.set_account(account("account-1"))
    assert (tmp_path / "plain_acl.yml").read_text() == "accounts: [}"


def test_a_change_includes_what_an_operator_has_just_written(tmp_path: Path) -> None:
    """Without waiting for a poll."""
    files = opened(tmp_path, text_of(account("account-1")))
    (tmp_path / "plain_acl.yml").write_text(text_of(account("account-2")))
    files.set_account(account("account-3"))
    assert [each["accessKey"] for each in content(tmp_path)["accounts"]] == ["account-2", "account-3"]


def test_a_failed_write_leaves_the_file(tmp_path: Path) -> None:
    """The error of the operating system reaches the caller."""
    files = opened(tmp_path, text_of(account("account-1")))
    before = files.rules
    (tmp_path / "plain_acl.yml.tmp").mkdir()
    with pytest.raises(IsADirectoryError):
        files.set_account(account("account-2"))
    assert files.rules is before
    assert [each["accessKey"] for each in content(tmp_path)["accounts"]] == ["account-1"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Its target is replaced."""
    (tmp_path / "target.yml").write_text(text_of(account("account-1")))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").symlink_to(tmp_path / "target.yml")
    opened(tmp_path / "conf").set_account(account("account-2"))
    assert (tmp_path / "conf" / "plain_acl.yml").is_symlink()
    assert len(yaml.safe_load((tmp_path / "target.yml").read_text())["accounts"]) == 2
