"""Plain child processes for the user's own trusted functions and commands (X-179).

Start reading at `pool`, which lives in the supervisor; then `host_process` and `host`, the one process it starts, which forks the workers;
then `child`, what a worker does. `wire` holds the messages between them. There is no containment here and none is claimed:
untrusted code belongs in `detent.executor.sandbox`.
"""
