"""The pytest plugin works in a project that uses it."""

import subprocess
import sys
from pathlib import Path

import pytest

from skylarkmq.broker.app.in_process import running
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.store_check import assert_consistent

pytestmark = pytest.mark.packaging

PROJECT = """
import pytest
from skylarkmq import Message, blocking


def test_a_message_is_sent_and_received(mq_broker):
    with blocking.Producer("p", namesrv=mq_broker.namesrv) as producer:
        sent = producer.send(Message("T", b"x"))
    with blocking.PullConsumer("g", namesrv=mq_broker.namesrv) as consumer:
        consumer.assign([sent.queue])
        consumer.seek(sent.queue, 0)
        assert [message.body for message in consumer.poll(timeout_s=10)] == [b"x"]


@pytest.mark.mq_broker(maxMessageSize=100, autoCreateTopicEnable=False)
def test_the_marker_changes_settings(mq_broker):
    with blocking.Admin(namesrv=mq_broker.namesrv) as admin:
        assert "TBW102" not in admin.topics()
"""


def test_the_fixture_starts_a_broker_for_each_test(tmp_path: Path) -> None:
    """With the plugin alone, each test has its own broker, with the settings of its marker."""
    (tmp_path / "test_it.py").write_text(PROJECT)
    plugins = ["-p", "skylarkmq.testing", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PROCESS_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_a_stopped_broker_leaves_a_consistent_store(tmp_path: Path) -> None:
    """A broker that stops gracefully leaves a consistent store."""
    with running(tmp_path) as broker:
        assert broker.namesrv.startswith("127.0.0.1:")
    assert_consistent(broker.store)
    assert not (broker.store / "abort").exists()
