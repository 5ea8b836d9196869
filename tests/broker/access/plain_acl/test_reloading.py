"""Files of accounts beside an event loop: polls, changes one at a time, and the stop."""

import asyncio
import logging
from functools import partial
from pathlib import Path

import pytest

from skylarkmq.broker.access.plain_acl.files import AclFiles
from skylarkmq.broker.access.plain_acl.reloading import ReloadedFiles
from tests.harness.waiting import until

ACCOUNT = {"accessKey": "account-1", "secretKey": "a-secret"}
TEXT = "accounts:\n- {accessKey: account-2, secretKey: a-secret}\n"


def opened(directory: Path) -> ReloadedFiles:
    files = AclFiles(directory, lambda: 0)
    files.open()
    return ReloadedFiles(files, poll_s=0.001)


async def until_accounts(files: ReloadedFiles, *names: str) -> None:
    await until(lambda: list(files.rules.accounts) == list(names))


async def test_changes_are_found_while_it_runs(tmp_path: Path) -> None:
    """And counted; no task is left after the stop."""
    files = opened(tmp_path)
    files.start()
    (tmp_path / "plain_acl.yml").write_text(TEXT)
    await until_accounts(files, "account-2")
    await until(lambda: files.statistics().reloads == 1)
    await files.stop()
    assert len(asyncio.all_tasks()) == 1


async def test_changes_run_one_at_a_time(tmp_path: Path) -> None:
    """None of them is lost."""
    files = opened(tmp_path)
    files.start()
    accounts = [{**ACCOUNT, "accessKey": f"account-{n}"} for n in range(10)]
    await asyncio.gather(*(files.run(partial(AclFiles.set_account, change=account)) for account in accounts))
    assert set(files.rules.accounts) == {account["accessKey"] for account in accounts}
    assert files.rules.default_version.counter == len(accounts)
    await files.stop()


@pytest.mark.parametrize("error", [PermissionError("no access"), ValueError("odd"), RecursionError()])
async def test_a_failed_poll_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """The polls go on, and find later changes."""
    files = opened(tmp_path)
    polls = 0

    def fail(_files: AclFiles) -> bool:
        nonlocal polls
        polls += 1
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(AclFiles, "poll", fail)
        files.start()
        await until(lambda: polls >= 3)
        await files.stop()
    assert [record.levelno for record in caplog.records if "not polled" in record.message] == [logging.WARNING]
    files.start()
    (tmp_path / "plain_acl.yml").write_text(TEXT)
    await until_accounts(files, "account-2")
    await files.stop()
