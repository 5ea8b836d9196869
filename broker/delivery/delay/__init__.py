"""Delay levels: messages wait in a queue of the schedule topic until their time has come."""
