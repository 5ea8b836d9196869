"""Attacks on a running daemon, and what must hold behind them."""
