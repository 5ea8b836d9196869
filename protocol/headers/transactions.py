"""Headers about transactions: END_TRANSACTION (37), CHECK_TRANSACTION_STATE (39), RESUME_CHECK_HALF_MESSAGE (323).

Source: docs/reference/wire.md, "Transactions".
"""

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64


class EndTransactionHeader(Header, gc=False, rename="camel"):
    """END_TRANSACTION (37). Offsets belong to the half message: in the half topic's queue, and in the commit log.

    `commit_or_rollback`: the transaction bits of a sysFlag: 8 commit, 12 rollback, 0 unknown.
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
    """CHECK_TRANSACTION_STATE (39), sent by the broker. The body is the half message as a record, with its real
    topic."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    bname: str | None = None


class ResumeCheckHeader(Header, gc=False, rename="camel"):
    """RESUME_CHECK_HALF_MESSAGE (323): the offset id of a half message, also of one that is no longer checked."""

    msg_id: str
    topic: str | None = None
    bname: str | None = None
