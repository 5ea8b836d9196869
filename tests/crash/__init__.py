"""The store cut down in the middle of work: by power, by the kernel, by damage, by kill -9."""
