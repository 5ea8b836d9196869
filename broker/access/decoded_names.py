"""The names in sends and pulls that were decoded together with their frame.

Most requests are such sends and pulls, so both generations of access control cache their decisions by these names, and
do not read the ext fields again.
"""

from skylarkmq.protocol.codes import RETRY_PREFIX
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.pull_command import decoded_pull

Names = tuple[str, str | None]
"""The topic; the group of a pull, None for a send."""


def decoded_names(command: RemotingCommand) -> Names | None:
    """Return the names in a request; None if it was not decoded with its frame, or is a send to a retry topic, whose
    group counts."""
    sent = command.send_header
    if sent is not None:
        topic: str = sent.topic
        return None if topic.startswith(RETRY_PREFIX) else (topic, None)
    pulled = decoded_pull(command)
    return None if pulled is None else (pulled.topic, pulled.consumer_group)
