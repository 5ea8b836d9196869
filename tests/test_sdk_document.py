"""docs/use/sdk.md is complete. Its examples run in tests/documents/test_examples.py."""

from tests.documents.examples import ROOT, examples_of


def test_the_document_has_an_example_of_each_entry_point() -> None:
    """Every method of a connection that creates a client is in an example."""
    all_code = "\n".join(example.code for example in examples_of(ROOT / "docs" / "use" / "sdk.md"))
    made = ("producer(", "transaction_producer(", "consumer(", "pull_consumer(", "admin(")
    for call in ("skylarkmq.connect(", "blocking.connect(", *(f"mq.{method}" for method in made)):
        assert call in all_code
