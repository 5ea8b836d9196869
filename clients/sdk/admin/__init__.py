"""Administration: topics, groups, offsets and messages, over the requests that `mqadmin` uses."""
