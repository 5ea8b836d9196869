"""The pytest plugin, as a project that uses it has it."""

import subprocess
import sys
from pathlib import Path

import pytest

from skylarkmq.broker.in_process import running
from tests.harness.store_check import assert_consistent

pytestmark = pytest.mark.packaging

PROJECT = """
import pytest
from skylarkmq import Message, blocking


def test_a_message_goes_there_and_back(mq_broker):
    with blocking.Producer("p", namesrv=mq_broker.namesrv) as producer:
        sent = producer.send(Message("T", b"x"))
    with blocking.PullConsumer("g", namesrv=mq_broker.namesrv) as consumer:
        consumer.assign([sent.queue])
        consumer.seek(sent.queue, 0)
        assert [message.body for message in consumer.poll(timeout_s=10)] == [b"x"]


@pytest.mark.mq_broker(maxMessageSize=100, autoCreateTopicEnable=False)
def test_settings_come_with_the_marker(mq_broker):
    with blocking.Admin(namesrv=mq_broker.namesrv) as admin:
        assert "TBW102" not in admin.topics()
"""


def test_a_project_has_a_broker_by_naming_a_fixture(tmp_path: Path) -> None:
    """With nothing but the plugin: each test its own broker, with the settings of its marker."""
    (tmp_path / "test_it.py").write_text(PROJECT)
    plugins = ["-p", "skylarkmq.testing", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_store_is_left_sound(tmp_path: Path) -> None:
    """A broker that is stopped in order leaves nothing to recover."""
    with running(tmp_path) as broker:
        assert broker.namesrv.startswith("127.0.0.1:")
    assert_consistent(broker.store)
    assert not (broker.store / "abort").exists()
