"""The accounts of the YAML files as accounts of the daemon: for its metrics page."""

from pathlib import Path

import pytest

from skylarkmq.broker.access.plain_acl.daemon_accounts import AclAccounts
from skylarkmq.broker.access.plain_acl.files import AclFiles
from skylarkmq.broker.access.plain_acl.reloading import ReloadedFiles
from skylarkmq.protocol.signature import Signed, SigningKey

SECRET = "a-secret"


@pytest.fixture
def files(tmp_path: Path) -> AclFiles:
    (tmp_path / "plain_acl.yml").write_text(f"accounts:\n- {{accessKey: account-1, secretKey: {SECRET}}}\n")
    files = AclFiles(tmp_path, lambda: 0)
    files.open()
    return files


async def test_the_password_of_an_account_is_its_secret_key(files: AclFiles) -> None:
    """Of the current rules; an unknown account has none."""
    reloaded = ReloadedFiles(files)
    accounts = AclAccounts(reloaded)
    assert accounts.password_matches("account-1", SECRET)
    assert not accounts.password_matches("account-1", "another")
    assert not accounts.password_matches("account-1", "")
    assert not accounts.password_matches("account-2", SECRET)
    await reloaded.run(lambda them: them.delete_account("account-1"))
    assert not accounts.password_matches("account-1", SECRET)


def test_signatures_are_those_of_the_account(files: AclFiles) -> None:
    """A request of an unknown account has none that is right."""
    accounts = AclAccounts(ReloadedFiles(files))
    signature = SigningKey(SECRET).sign(b"content", b"body")
    assert accounts.has_signed(Signed("account-1", signature, b"content"), b"body")
    assert not accounts.has_signed(Signed("account-1", signature, b"content"), b"another")
    assert not accounts.has_signed(Signed("account-2", signature, b"content"), b"body")
    assert [accounts.is_known(name) for name in ("account-1", "account-2")] == [True, False]


def test_an_unknown_account_is_checked_like_a_known_one(files: AclFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sign the same text with a key: nothing shows whether the account exists."""
    accounts = AclAccounts(ReloadedFiles(files))
    signed: list[tuple[bytes, bytes | memoryview]] = []
    sign = SigningKey.sign

    def recorded(key: SigningKey, content: bytes, body: bytes | memoryview) -> str:
        signed.append((content, body))
        return sign(key, content, body)

    monkeypatch.setattr(SigningKey, "sign", recorded)
    steps = []
    for account in ("account-1", "account-2"):
        signed.clear()
        assert not accounts.password_matches(account, "wrong")
        steps.append(list(signed))
    assert steps[0] == steps[1] != []


def test_no_representation_contains_a_secret(files: AclFiles) -> None:
    """It shows the number of accounts."""
    assert repr(AclAccounts(ReloadedFiles(files))) == "<AclAccounts 1>"
