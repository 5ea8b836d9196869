"""Tests. Folders mirror the packages; the first line of each test states the behavior that it checks."""
