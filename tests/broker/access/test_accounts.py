"""Accounts of a daemon: the file, its changes while the daemon runs, signatures and passwords."""

import os
from pathlib import Path

import pytest

from skylarkmq.broker.access.accounts import Account, AccountsFile, AccountTable, AnyOf, own_credentials, table_of
from skylarkmq.broker.access.config import Credentials
from skylarkmq.broker.base.errors import StartError
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.signature import Signed, Signer, SigningKey, signed_parts

SECRET = "sesame-sesame"
ACCOUNTS = f'[{{"accessKey":"broker-a","secretKey":"{SECRET}"}},{{"accessKey":"broker-b"}}]'


def signed_by(account: str, secret: str, body: bytes = b"body") -> tuple[Signed, bytes]:
    """Return the signed parts of a request that this account has signed."""
    command = RemotingCommand.request(RequestCode.REGISTER_BROKER, body=body)
    Signer(account, secret).sign(command)
    signed = signed_parts(command, is_unique_key_query_signed=True)
    assert signed is not None
    return signed, body


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "accounts.json"
    path.write_text(ACCOUNTS)
    return path


def rewrite(path: Path, text: str) -> None:
    """Replace the file's content, with another modification time."""
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))


def test_an_account_signs_with_its_secret(path: Path) -> None:
    """Another secret, another body, an unknown account and an account without a secret are refused."""
    accounts = AccountsFile(path)
    assert accounts.has_signed(*signed_by("broker-a", SECRET))
    assert not accounts.has_signed(*signed_by("broker-a", SECRET + "x"))
    assert not accounts.has_signed(signed_by("broker-a", SECRET)[0], b"other")
    assert not accounts.has_signed(*signed_by("unknown", SECRET))
    assert not accounts.has_signed(*signed_by("broker-b", ""))
    assert not accounts.has_signed(Signed("broker-a", "", b""), b"")


def test_a_password_is_the_secret(path: Path) -> None:
    """An account without a secret has no password."""
    accounts = AccountsFile(path)
    assert accounts.password_matches("broker-a", SECRET)
    for account, password in (("broker-a", SECRET[:-1]), ("unknown", SECRET), ("broker-b", ""), ("", "")):
        assert not accounts.password_matches(account, password)


def test_an_unknown_account_is_checked_like_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown accounts and wrong secrets take the same steps: one signature is computed for each."""
    table = AccountTable([Account("broker-a", SECRET)])
    steps: list[str] = []
    has_signed = SigningKey.has_signed

    def counted(key: SigningKey, signed: Signed, body: bytes) -> bool:
        steps.append("sign")
        return has_signed(key, signed, body)

    monkeypatch.setattr(SigningKey, "has_signed", counted)
    wrong = Signed("broker-a", "x", b"")
    unknown = Signed("unknown", "x", b"")
    assert not table.has_signed(wrong, b"")
    assert steps == ["sign"]
    assert not table.has_signed(unknown, b"")
    assert steps == ["sign", "sign"]


def test_a_changed_file_is_read_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """New accounts count at once; an invalid file keeps the old ones and is logged once, without its content."""
    accounts = AccountsFile(path)
    rewrite(path, '[{"accessKey":"broker-c","secretKey":"other-secret"}]')
    assert accounts.is_known("broker-c")
    assert not accounts.is_known("broker-a")
    rewrite(path, '[{"accessKey":"broker-d","secretKey":"geheim"')
    assert accounts.is_known("broker-c")
    assert accounts.is_known("broker-c")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "accounts not reloaded, the old ones are kept" in warnings[0]
    assert "geheim" not in caplog.text
    path.unlink()
    assert accounts.is_known("broker-c")


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "null", "5", "{}", "[1]", "[[]]", "[" * 100_000, '[{"accessKey":"' + "x" * 20_000_000, "\0", "[{}]",
        '[{"accessKey":"\\ud800","secretKey":"s"}]', '[{"accessKey":5,"secretKey":"s"}]', "[" + "9" * 5_000 + "]",
    ],
    ids=range(14),
)  # fmt: skip
def test_no_content_of_a_file_changes_the_accounts(path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """They stay until the file is valid again; one line has the reason."""
    accounts = AccountsFile(path)
    rewrite(path, text)
    assert [accounts.is_known("broker-a"), accounts.is_known("broker-a")] == [True, True]
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    rewrite(path, '[{"accessKey":"broker-c","secretKey":"other-secret"}]')
    assert [accounts.is_known("broker-a"), accounts.is_known("broker-c")] == [False, True]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "truncated"),
        ("{}", "array"),
        ('[{"secretKey":"geheim-geheim"}]', "accessKey"),
        ('[{"accessKey":"","secretKey":"geheim-geheim"}]', "an empty accessKey"),
        ('[{"accessKey":"a","secretKey":""}]', "an empty accessKey or secretKey"),
        ('[{"accessKey":"a","secretKey":"geheim-geheim"},{"accessKey":"a"}]', "more than once"),
        ('[{"accessKey":"a","secretKey":["geheim-geheim"]}]', "str"),
    ],
)
def test_an_invalid_file_stops_the_start(path: Path, text: str, reason: str) -> None:
    """With file, setting and reason, and without its content."""
    path.write_text(text)
    with pytest.raises(StartError, match=reason) as caught:
        AccountsFile(path)
    assert str(caught.value).startswith(f"accountsFile={path}: ")
    assert "geheim" not in str(caught.value)


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    """With the reason of the system."""
    with pytest.raises(StartError, match="No such file"):
        AccountsFile(tmp_path / "none.json")


def test_accounts_of_several_sources_are_one_set(path: Path) -> None:
    """An account of any source counts; the broker's own credentials are new ones in each process."""
    own = own_credentials()
    assert own.secret_key != own_credentials().secret_key
    accounts = AnyOf([table_of(own), AccountsFile(path)])
    assert accounts.has_signed(*signed_by(own.access_key, own.secret_key))
    assert accounts.has_signed(*signed_by("broker-a", SECRET))
    assert accounts.password_matches(own.access_key, own.secret_key)
    assert not accounts.is_known("unknown")
    assert not accounts.has_signed(*signed_by(own.access_key, SECRET))


def test_secrets_are_not_part_of_a_repr(path: Path) -> None:
    """Neither of the file's accounts nor of credentials."""
    credentials = Credentials("a", SECRET)
    parts = (credentials, Account("a", SECRET), AccountsFile(path), table_of(credentials), Signer("a", SECRET))
    for part in (*parts, AnyOf([AccountsFile(path)])):
        assert SECRET not in f"{part!r} {part}"
