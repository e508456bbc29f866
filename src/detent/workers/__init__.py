"""Workers: what claims jobs, runs them and reports results.

The `supervisor` of a process claims jobs in batches, keeps their leases alive, hands each to an *executor* by its kind, and reports
what came back in as few commits as possible. Its steps are in `work_loop`, which works against a `bench`: `home_bench` is that of a
home on this machine. `executor` is the protocol. `plain_executor` runs the user's own functions and commands
in worker processes; `sandbox_executor` runs code from contracts and platform jobs; map steps have one in `runs.map_executor`.

`resources` holds a job back until the resources it asks for are free, and counts them across the processes of a home. `claim_ahead` claims jobs in the commit that submits them while workers are free. `drive` says which thread takes the supervisor's steps. `reports` signs what
an attempt came to, `next_attempt` says whether and when another one follows, `identity` tells a living worker from one that is gone,
and `live_output` shows what a running job prints.
"""
