"""What runs inside the jail on behalf of a job type: a tool, its input, its files.

These modules are mounted into jails and imported there, beside the tools they drive; nothing here is imported by the
supervisor. What they say is read outside like any guest's word, because a tool that was taken over speaks through them.
"""
