"""The tests mirror the packages; the first line of each test states the promise it keeps."""
