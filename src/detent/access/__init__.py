"""Who may ask the server for what, and how it says no. Decisions only: same arguments, same answer.

    a credential  ->  a principal with one workspace and its scopes  ->  a route's scope  ->  a rate  ->  the handler

* `tokens` writes and reads credentials; the server stores their digests.
* `signature` signs requests of workers and operators, and reads such signatures (RFC 9421).
* `state` is who has access: keys, members and workspaces, folded from the ledger's `operated` records; `changes` decides what may be
  changed, by whom; `actions` lists what operators can do that is recorded, and `attempts` bounds how often refusals are.
* `browser` tells a request of our own pages from one of a foreign page; `forwarded` reads what a proxy says.
* `scopes` lists the scopes, the roles that are sets of them, and the `Principal` that every request acts for.
* `headers` judges what a request says about itself before anything is routed: host, path, media types, entity tags.
* `cursor` is the place where a listing goes on. It carries no authority: filters and the tenant are applied again.
* `buckets` bounds how often a principal may ask.
* `problem` turns every "no" into one document (RFC 9457), with title, status and retryable from `detent.errors.CODES`.

The workspace comes from the credential alone, never from a path or a body. What belongs to another workspace does not exist: it is
answered like something that never was.

Nothing here reads a clock, a file or a socket; `serve` does that and asks.
"""
