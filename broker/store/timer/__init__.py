"""Files of timer messages: the timer log, the timer wheel, and the order in which both are written and synced.

`broker.delivery.timer` decides when a timer message is due and where it is delivered.
"""
