"""`help` and editors show each option: signatures list them, and each has a docstring."""

import inspect
import pydoc
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest

import skylarkmq
from skylarkmq import blocking, options
from skylarkmq.clients.sdk.base.field_docstrings import explained, field_docstrings, own_docstring
from skylarkmq.clients.sdk.connection.options import LEFT_OUT

CLASSES = {
    "Producer": options.StandaloneProducerOptions,
    "TransactionProducer": options.StandaloneProducerOptions,
    "PullConsumer": options.StandalonePullConsumerOptions,
    "PushConsumer": options.StandalonePushConsumerOptions,
    "Admin": options.StandaloneOptions,
    "MessageQueueClient": options.ConnectOptions,
    "connect": options.ConnectOptions,
}
METHODS = {
    "producer": options.ProducerOptions,
    "transaction_producer": options.ProducerOptions,
    "pull_consumer": options.PullConsumerOptions,
    "consumer": options.PushConsumerOptions,
}
CALLS: list[tuple[Callable[..., Any], Any]] = [
    *((getattr(module, name), kind) for module in (skylarkmq, blocking) for name, kind in CLASSES.items()),
    *(
        (getattr(module.MessageQueueClient, name), kind)
        for module in (skylarkmq, blocking)
        for name, kind in METHODS.items()
    ),
]
OPTIONS = [getattr(options, name) for name in options.__all__]
SETTINGS = (skylarkmq.ClientSettings, skylarkmq.ProducerSettings, skylarkmq.ConsumerSettings, skylarkmq.TlsSettings)


@pytest.mark.parametrize(("call", "kind"), CALLS, ids=lambda one: f"{one.__module__}.{one.__qualname__}")
def test_a_signature_lists_every_option(call: Callable[..., Any], kind: type) -> None:
    """With its type, as keyword only; `help` prints it. Type checkers read the structure of options."""
    parameters = inspect.signature(call).parameters
    listed = {name: one.annotation for name, one in parameters.items() if one.default is LEFT_OUT}
    assert listed == get_type_hints(kind)
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in listed)
    assert inspect.Parameter.VAR_KEYWORD not in {one.kind for one in parameters.values()}
    text = pydoc.plain(pydoc.render_doc(call))
    assert [name for name in listed if f"{name}: " not in text] == []
    function = call.__init__ if inspect.isclass(call) else call
    assert get_args(function.__annotations__["options"]) == (kind,)


@pytest.mark.parametrize("kind", [*SETTINGS, *OPTIONS], ids=lambda kind: kind.__name__)
def test_every_option_and_setting_has_a_docstring(kind: type) -> None:
    """Editors show the string literal after the field, `help` of the class all of them. Each is a sentence."""
    texts = field_docstrings(kind)
    assert texts.keys() == get_type_hints(kind).keys()
    assert [name for name, text in texts.items() if not text.endswith((".", ".`")) or not text[0].isupper()] == []
    shown = pydoc.plain(pydoc.render_doc(kind))
    assert own_docstring(kind) in (inspect.getdoc(kind) or "")
    assert [name for name, text in texts.items() if f"{name}\n |      {text}\n" not in shown] == []


def test_a_class_without_a_source_has_its_own_docstring(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a frozen program."""

    def absent(_module: object) -> str:
        raise OSError("no source")

    monkeypatch.setattr(inspect, "getsource", absent)

    @explained
    class Frozen:
        """Settings of a test."""

        retries: int = 2
        """Not found."""

    assert (Frozen.__doc__, field_docstrings(Frozen)) == ("Settings of a test.", {})


def test_a_signature_refuses_what_is_no_option() -> None:
    """`Signature.bind` takes the options, as tools do that check calls."""
    signature = inspect.signature(skylarkmq.MessageQueueClient.consumer)
    signature.bind(None, "g", handler=None, orderly=True)
    with pytest.raises(TypeError, match="ordered"):
        signature.bind(None, "g", ordered=True)
