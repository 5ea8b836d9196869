"""Headers about transactions: how one ended (37), and the broker's question how it did (39);
and an operator's wish that it be asked again (323).

Source: docs/formats.md, "Transactions".
"""

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64


class EndTransactionHeader(Header, gc=False, rename="camel"):
    """Request 37; offsets are those of the half message: in the half topic's queue, and in the log.

    `commit_or_rollback`: the transaction bits of a system flag, 8 for commit, 12 for rollback, 0 for not known.
    """

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    topic: str | None = None
    from_transaction_check: BoolText | None = None
    transaction_id: str | None = None
    bname: str | None = None


class CheckTransactionHeader(Header, gc=False, rename="camel"):
    """Request 39, by the broker; its body is the half message as a record, under its real topic."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    bname: str | None = None


class ResumeCheckHeader(Header, gc=False, rename="camel"):
    """Request 323: the offset id of a half message, or of one that is no longer asked about."""

    msg_id: str
    topic: str | None = None
    bname: str | None = None
