"""Errors of accounts, permissions and addresses."""


class AclError(ValueError):
    """An invalid value. The message is RocketMQ's text where it has one, and contains no secret key."""
