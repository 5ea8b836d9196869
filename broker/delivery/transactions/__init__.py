"""Transactions: half messages wait until their producer says how its part ended, and are asked about if it does not."""
