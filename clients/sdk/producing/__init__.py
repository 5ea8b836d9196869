"""Producers: sends with retries, transactions, request-reply, and recall of delayed messages.

`producer` and `transactions` are the public classes. Everything that is shared with consumers is in `connection`.
"""
