"""Resources and source addresses of policies, as RocketMQ 5.3.3 reads and compares them."""

import pytest

from skylarkmq.broker.access.auth.source_addresses import contains, is_valid
from skylarkmq.broker.access.requests.resources import Pattern, Resource


@pytest.mark.parametrize(
    ("text", "resource", "key"),
    [
        ("*", Resource("Any", None, Pattern.ANY), "*"),
        ("Topic:orders", Resource("Topic", "orders"), "Topic:orders"),
        ("topic:orders", Resource("Topic", "orders"), "Topic:orders"),
        ("Topic:ord*", Resource("Topic", "ord", Pattern.PREFIXED), "Topic:ord*"),
        ("Topic:a*b*", Resource("Topic", "a", Pattern.PREFIXED), "Topic:a*"),
        ("Topic:a*b", Resource("Topic", "a*b"), "Topic:a*b"),
        ("Topic:a:b", Resource("Topic", "a:b"), "Topic:a:b"),
        ("Topic:*", Resource("Topic", None, Pattern.ANY), "Topic:*"),
        ("GROUP:*", Resource("Group", None, Pattern.ANY), "Group:*"),
        ("Cluster:DefaultCluster", Resource("Cluster", "DefaultCluster"), "Cluster:DefaultCluster"),
        ("Topic", Resource("Topic", ""), "Topic:"),
        ("Any:x", Resource("Any", "x"), "*"),
        ("Queue:x", None, None),
        ("", None, None),
        ("  ", None, None),
        (None, None, None),
    ],
)
def test_the_text_of_a_resource(text: str | None, resource: Resource | None, key: str | None) -> None:
    """Types are read without case; a trailing asterisk is a prefix; unknown types are no resource."""
    assert Resource.parse(text) == resource
    assert resource is None or resource.key == key


@pytest.mark.parametrize(
    ("policy", "request_resource", "expected"),
    [
        ("*", Resource.topic("T"), True),
        ("*", Resource.topic(None), True),
        ("Topic:T", Resource.topic("T"), True),
        ("Topic:T", Resource.topic("T2"), False),
        ("Topic:T", Resource.group("T"), False),
        ("Topic:T*", Resource.topic("T2"), True),
        ("Topic:T*", Resource.topic("T"), True),
        ("Topic:T*", Resource.topic("S"), False),
        ("Topic:*", Resource.topic("T"), True),
        ("Topic:*", Resource.topic(None), True),
        ("Topic:T", Resource.topic(None), False),
        ("Topic:T*", Resource.topic(None), False),
        ("Group:G", Resource.group("%RETRY%G"), True),
        ("Topic:*", Resource.group("%RETRY%G"), False),
    ],
)
def test_which_resources_a_policy_covers(policy: str, request_resource: Resource, expected: bool) -> None:
    """Literal names, prefixes, all names and all resources; a retry topic is its group."""
    parsed = Resource.parse(policy)
    assert parsed is not None
    assert parsed.covers(request_resource) is expected


def test_a_missing_name_is_the_text_null() -> None:
    """Remarks of requests without a name are RocketMQ's."""
    assert Resource.topic(None).key == "Topic:null"


@pytest.mark.parametrize(
    ("source", "host", "expected"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.0.0/16", "10.1.255.255", True),
        ("10.1.2.3/16", "10.1.9.9", True),
        ("10.1.0.0/16", "10.2.0.0", False),
        ("0.0.0.0/0", "8.8.8.8", True),
        ("0.0.0.0/0", "::1", False),
        ("10.0.0.0/8", "::ffff:10.1.1.1", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("fd00::/8", "fd12::5", True),
        ("fd00::/8", "fe80::1", False),
        ("10.0.0.0/8", "?", False),
    ],
)
def test_which_peers_a_source_contains(source: str, host: str, expected: bool) -> None:
    """Addresses and CIDR networks of both families."""
    assert contains([source], host) is expected


@pytest.mark.parametrize(
    "text", ["localhost", "10.1.2", "10.1.2.256", "10.0.0.0/33", "::/129", "10.0.0.0/255.0.0.0", "1.2.3.4/", "/8", "*"]
)
def test_texts_that_are_no_source(text: str) -> None:
    """Names, incomplete addresses, netmasks and wildcards."""
    assert not is_valid(text)
