"""Each action of the console in Chromium: by mouse, by touch on a phone, and by keyboard alone.

Each action asks, acts, and shows its result in one line; the cluster then has what the action promised.
"""

from typing import Final

import pytest

from skylarkmq.clients.sdk import Message, MessageQueue
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.message import PropertyName
from tests.browser.cluster import HOUR, FilledCluster
from tests.browser.hands import Hand

pytestmark = pytest.mark.browser

BROKER: Final = "broker-a"


def test_a_topic_is_created_changed_and_deleted(hand: Hand, cluster: FilledCluster) -> None:
    """The forms lead to questions, and each result is on the page of the topic, at last on the list."""
    topic = f"Made-by-{hand.name}"
    hand.page.goto("/topics")
    hand.press("#new-topic")
    hand.write("#topic", topic)
    hand.write("#write-queues", "2")
    hand.write("#read-queues", "3")
    hand.press("#topic-form button")
    hand.show_question("confirm-topic")
    assert hand.confirm() == f"Topic {topic} is stored on all brokers."
    hand.press("#edit-topic")
    hand.choose("#perm", "R--")
    hand.press("#order")
    hand.press("#topic-form button")
    hand.confirm()
    config = cluster.run(cluster.admin.topic_config.get(cluster.broker, topic))
    assert (config.write_queue_nums, config.read_queue_nums, config.perm, config.order) == (2, 3, 4, True)
    hand.press("#delete-topic button")
    hand.show_question("confirm-delete")
    assert hand.confirm() == f"Topic {topic} is deleted."
    assert topic not in cluster.run(cluster.admin.topics())


def test_a_test_message_is_sent(hand: Hand, cluster: FilledCluster) -> None:
    """The message is found by its key, on the page of messages."""
    key = f"key-by-{hand.name}"
    hand.page.goto("/topics/Returns")
    hand.press("#send-message")
    hand.write("#body", '{"sent": "by hand"}')
    hand.write("#keys", key)
    hand.press("#send-form button")
    assert "is stored in queue Returns@" in hand.confirm()
    hand.page.goto("/messages")
    hand.write("#topic-key", "Returns")
    hand.write("#key", key)
    hand.press("#by-key button")
    hand.press("#messages tbody a")
    hand.press("#as-json")
    assert '"sent": "by hand"' in hand.page.locator("#body").inner_text()


def test_a_group_is_created_changed_and_deleted(hand: Hand, cluster: FilledCluster) -> None:
    """The forms lead to questions, and each result is on the page of the group, at last on the list."""
    group = f"made-by-{hand.name}"
    hand.page.goto("/groups")
    hand.press("#new-group")
    hand.write("#group", group)
    hand.write("#retry-max-times", "3")
    hand.press("#group-form button")
    assert hand.confirm() == f"Group {group} is stored on all brokers."
    hand.press("#edit-group")
    hand.press("#consume-enable")
    hand.press("#group-form button")
    hand.confirm()
    config = cluster.run(cluster.admin.groups())[group]
    assert (config.retry_max_times, config.consume_enable) == (3, False)
    hand.press("#delete-group button")
    assert hand.confirm() == f"Group {group} is deleted."
    assert group not in cluster.run(cluster.admin.groups())


def test_offsets_are_reset(hand: Hand, cluster: FilledCluster) -> None:
    """The group is moved to the end of the topic, and then to a time."""
    group, queue = f"moved-by-{hand.name}", MessageQueue("Orders", BROKER, 0)
    cluster.run(cluster.admin.create_group(SubscriptionGroupConfig(group)))
    cluster.run(cluster.admin.set_offset(group, queue, 1))
    hand.page.goto(f"/groups/{group}")
    hand.choose("#to", "the end of each queue")
    hand.press("#reset-form button")
    assert "is at the end of each queue" in hand.confirm()
    assert hand.page.locator("#lag").inner_text() == "0"
    hand.write("#time", "2020-01-01T00:00:00")
    hand.press("#reset-form button")
    hand.show_question("confirm-reset")
    assert "2020-01-01" in hand.confirm()
    assert cluster.run(cluster.admin.group_offsets(group, "Orders"))[queue].consumer_offset == 0


def letters_of(cluster: FilledCluster, group: str, count: int) -> None:
    """Create a group with dead letters."""
    cluster.run(cluster.admin.create_group(SubscriptionGroupConfig(group)))
    for topic in (f"%DLQ%{group}", f"%RETRY%{group}"):
        cluster.run(cluster.admin.create_topic(topic, queues=1))
    for number in range(count):
        message = Message(f"%DLQ%{group}", b"letter %d" % number, properties={PropertyName.RETRY_TOPIC: "Returns"})
        cluster.run(cluster.producer.send(message))


def retries_of(cluster: FilledCluster, group: str) -> list[bytes]:
    pulled = cluster.run(cluster.admin.messages.pull(MessageQueue(f"%RETRY%{group}", BROKER, 0), 0, 32))
    return [message.body for message in pulled.messages]


def test_a_dead_letter_is_sent_again(hand: Hand, cluster: FilledCluster) -> None:
    """The choice of the question decides where the copy goes."""
    group = f"one-by-{hand.name}"
    letters_of(cluster, group, 1)
    hand.page.goto(f"/dead-letters/{group}")
    hand.press("#letters tbody button")
    hand.choose("#target", "the topic that it came from: all its groups")
    hand.show_question("confirm-resend")
    assert "is sent again: queue Returns@" in hand.confirm()
    assert retries_of(cluster, group) == []
    hand.press("#letters tbody button")
    hand.confirm()
    assert retries_of(cluster, group) == [b"letter 0"]


def test_all_dead_letters_of_a_filter_are_sent_again(hand: Hand, cluster: FilledCluster) -> None:
    """The page shows the progress until all are sent."""
    group = f"all-by-{hand.name}"
    letters_of(cluster, group, 12)
    hand.page.goto(f"/dead-letters/{group}")
    hand.write("#text", "letter 1")
    hand.press("#filter button")
    hand.press("#resend-all button")
    assert "being sent" in hand.confirm()
    hand.page.locator("#job", has_text=f"3 dead letters of {group} are sent again.").wait_for()
    hand.tab.shot("letters-sent")
    assert retries_of(cluster, group) == [b"letter 1", b"letter 10", b"letter 11"]


def test_a_delayed_message_is_canceled(hand: Hand, cluster: FilledCluster) -> None:
    """The message is no longer listed."""
    sent = cluster.run(cluster.producer.send(Message("Later", b"not needed any more"), delay=HOUR))
    hand.page.goto("/delayed")
    hand.press(f"button[aria-label='Cancel {sent.msg_id}']")
    assert hand.confirm().startswith(f"Message {sent.msg_id} is canceled")
    assert sent.msg_id not in hand.page.locator("#timers").inner_text()


def test_a_transaction_is_checked_again(hand: Hand) -> None:
    """The result names the transaction, which stays in doubt, since its producer still does not decide."""
    hand.page.goto("/transactions")
    transaction = hand.page.locator("#transactions tbody a").first.inner_text()
    hand.press("#transactions tbody button")
    assert hand.confirm().startswith(f"The producers of transaction {transaction} are asked again")


def test_a_question_that_is_canceled_changes_nothing(hand: Hand, cluster: FilledCluster) -> None:
    """Cancel leads back to the page of the topic."""
    hand.page.goto("/topics/Orders")
    hand.press("#delete-topic button")
    hand.press("#cancel")
    assert hand.page.locator("h1").inner_text() == "Topic Orders"
    assert "Orders" in cluster.run(cluster.admin.topics())


def test_a_refused_value_is_one_line(hand: Hand) -> None:
    """The form is shown again with the reason."""
    hand.page.goto("/topic-form")
    hand.write("#topic", "not allowed!")
    hand.press("#topic-form button")
    assert hand.tab.notice.startswith("Not done: ")
    hand.tab.shot("refused")


def test_pages_are_reached_by_the_navigation(hand: Hand) -> None:
    """Each entry opens its page, which marks the entry as the current one."""
    hand.page.goto("/settings")
    for name in (
        "overview",
        "topics",
        "groups",
        "messages",
        "dead-letters",
        "delayed",
        "transactions",
        "connections",
        "replication",
    ):
        hand.press(f"#nav-{name}")
        hand.page.locator(f"#nav-{name}[aria-current=page]").wait_for()


def test_a_list_is_searched_and_paged(hand: Hand) -> None:
    """The search is the server's, and the pages have 50 rows."""
    hand.page.goto("/topics")
    assert hand.page.locator("#topics tbody tr").count() == 50
    hand.press("a[rel=next]")
    hand.page.locator("a[rel=prev]").wait_for()
    hand.write("#q", "Topic-4")
    hand.press("#filter button")
    hand.page.locator("a[rel=prev]").wait_for(state="detached")
    assert hand.page.locator("#topics tbody tr").count() == 10


def test_the_forms_of_a_body_are_shown(hand: Hand, cluster: FilledCluster) -> None:
    """Text, JSON and hex; trace and groups are one press away."""
    hand.page.goto(f"/messages/{cluster.content.order.offset_msg_id}")
    for form, shown in (("text", '{"order": 4711'), ("json", '  "order": 4711'), ("hex", "7b 22 6f 72")):
        hand.press(f"#as-{form}")
        hand.page.locator(f"#as-{form}[aria-current=page]").wait_for()
        assert shown in hand.page.locator("#body").inner_text()
    hand.press("#show-groups")
    assert "billing" in hand.page.locator("#tracks").inner_text()
    hand.press("#show-trace")
    assert "Pub" in hand.page.locator("#trace").inner_text()


def test_the_first_tab_stop_skips_the_navigation(hand: Hand) -> None:
    """The link appears when it has the focus, and leads to the content."""
    hand.page.goto("/topics")
    hand.page.keyboard.press("Tab")
    hand.page.keyboard.press("Enter")
    assert hand.page.evaluate("document.activeElement.id") == "main"
