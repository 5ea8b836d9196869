"""Delay levels: messages wait in a queue of the schedule topic until they are due."""
