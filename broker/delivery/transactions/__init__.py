"""Transactions: half messages wait for the decision of their producer, and are checked if it does not arrive."""
