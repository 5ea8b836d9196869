"""The configuration of a consumer group as RocketMQ's tool prints it: in one line, or field by field.

    SubscriptionGroupConfig{groupName=billing, consumeEnable=true, ..., attributes={}}

The retry policy is JSON in the option and in the request; here it has its fields and RocketMQ's defaults.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from skylarkmq.clients.mqadmin.java_output import java_text
from skylarkmq.clients.sdk.base.errors import checking_argument
from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.hash_order import bucket_order

_S, _M, _H = 1000, 60 * 1000, 60 * 60 * 1000
_DELAYS_MS: Final = (
    1 * _S, 5 * _S, 10 * _S, 30 * _S,
    *(minutes * _M for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    1 * _H, 2 * _H,
)  # fmt: skip


class ExponentialRetryPolicy(msgspec.Struct):
    """Delays in ms that are multiplied from retry to retry."""

    initial: int = 5 * _S
    max: int = 2 * _H
    multiplier: int = 2


class CustomizedRetryPolicy(msgspec.Struct):
    """Delays in ms, one for each retry."""

    next: list[int] = msgspec.field(default_factory=lambda: list(_DELAYS_MS))


class GroupRetryPolicy(msgspec.Struct, rename="camel", omit_defaults=False):
    """When a message is redelivered."""

    type: Literal["CUSTOMIZED", "EXPONENTIAL"] = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


def retry_policy_of(text: str) -> dict[str, Any]:
    """Return the policy in the JSON of an option, for a request. InvalidArgument if it is not valid."""
    with checking_argument("groupRetryPolicy"):
        policy = msgspec.convert(javajson.loads(text), GroupRetryPolicy, strict=False)
    return {name: value for name, value in msgspec.to_builtins(policy).items() if value is not None}


def group_line(config: SubscriptionGroupConfig) -> str:
    """Return a configuration in one line."""
    return _object("SubscriptionGroupConfig", _fields(config))


def group_fields(config: SubscriptionGroupConfig) -> dict[str, str]:
    """Return each field of a configuration as text; blank if it has no value."""
    return {name: "" if value is None else java_text(value) for name, value in _fields(config).items()}


def _fields(config: SubscriptionGroupConfig) -> dict[str, object]:
    """Return the fields by RocketMQ's names, in its order."""
    fields = {field.encode_name: getattr(config, field.name) for field in msgspec.structs.fields(config)}
    listed = config.subscription_data_set
    return fields | {
        "groupRetryPolicy": _policy(config.group_retry_policy),
        "subscriptionDataSet": None if listed is None else f"[{', '.join(map(_struct, listed))}]",
        "attributes": _map({name: config.attributes[name] for name in bucket_order(config.attributes)}),
    }


def _policy(policy: Mapping[str, Any]) -> str:
    parsed = msgspec.convert(policy, GroupRetryPolicy, strict=False)
    exponential, customized = parsed.exponential_retry_policy, parsed.customized_retry_policy
    fields = {
        "type": parsed.type,
        "exponentialRetryPolicy": None if exponential is None else _struct(exponential),
        "customizedRetryPolicy": None if customized is None else _struct(customized),
    }
    return _object("GroupRetryPolicy", fields)


def _struct(struct: msgspec.Struct) -> str:
    fields = {field.encode_name: getattr(struct, field.name) for field in msgspec.structs.fields(struct)}
    return _object(type(struct).__name__, fields)


def _object(name: str, fields: Mapping[str, object]) -> str:
    return f"{name}{_map(fields)}"


def _map(fields: Mapping[str, object]) -> str:
    return f"{{{', '.join(f'{name}={java_text(value)}' for name, value in fields.items())}}}"
