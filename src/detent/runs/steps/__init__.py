"""Driving the steps of a contract.

`plan` asks the planner for one action for each step, and `graph` knows which steps may begin. For each element whose turn it is,
`candidates` reads what is known about its work, `next_work` decides (submit, join, reuse, fail, adopt, supersede) without touching
anything, and `progress` carries the decision out; `orders` makes the jobs. The `driver` waits for news and holds nothing that is not
on the ledger.
"""
