"""Effects around the kernel: the owner of a partition, homes, sessions, content."""
