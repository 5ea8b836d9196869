"""Storage: the commit log, its consume queues and their files, behind one door, MessageStore."""
