"""Producers: sends with retries, transactions, request-reply, and recall of delayed messages.

`producer` and `transactions` are the public classes. Code that consumers share is in `connection` and
`messages`.
"""
