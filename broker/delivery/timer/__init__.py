"""Arbitrary timers: messages wait on the timer wheel until the second that they were sent for."""
