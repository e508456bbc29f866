"""A server's home, used from elsewhere: the client side of the HTTP API.

- `address` reads what a user says about a server: its URL, a key, a pinned public key. Plain HTTP beyond this machine is refused.
- `http` sends requests over kept `connections`: deadlines, bounded answers, and a repeat where an answer was lost. It knows nothing about what
  is asked, so commands, `detent.Client` and workers share it.
- `home` is a home behind a server, as commands use it: pages, logs, and what they follow.
- `heads` keeps tree heads of servers, so that one that was put back to an older copy is noticed.
- `bundles` fetches a server's ledger, whole or one run of it, and verifies it here.
- `files` reads what jobs made, by signed URL and digest; `uploads` sends what they are given.
- `jobs` submits payloads and reads results of any size.
- `trees` sends the code of a run, `runs` starts and watches one.
- `problems` turns a problem document into the error that the same call raises on a local home.

Only the standard library is used: a client needs no extra.
"""
