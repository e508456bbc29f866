"""The server: HTTP in front of a home, for people and programs on this machine or elsewhere.

    protocol  ->  exchange  ->  app  ->  table  ->  routes/*  ->  tenant_reader
    bytes         one request   checks   one row    handlers      the ledger, one workspace at a time

* `table` says what a route is. Everything that is said about routes is made from it: the router, `docs/openapi.json`,
  `docs/reference/http.md`, and the tests that try each route with every kind of credential. A route without a scope or without its
  codes does not start.
* `protocol` is one HTTP connection, with deadlines and limits of our own; an `exchange` is one request on it and its answer.
* `app` does for every request what must never be forgotten: host, path, credential, scope, rate, query, body, problem, headers.
* `access` is who may ask for what: it follows the ledger's records about keys, members and workspaces, and has the `gate`, the
  `authenticate`d credentials, the rates (`limits`) and the streams that end with their credential (`open_streams`). `audit` makes the
  record of an operator's action, which goes behind the commands of the same request.
* Handlers in `routes/` are thin: they get a `Call` with a principal and checked values, and give an `Answer`. They reach the
  ledger through a `TenantReader`, whose every method takes the workspace; the store itself cannot be imported there.
* `events` follows the ledger: the id of an event is a position, so a stream resumes exactly, also after a restart.
* `server` puts the parts together and runs them: the HTTP loop in the main thread, the owner's threads beside it, reads on four
  more. Code of users never runs in this process.

Nothing outside this room imports httptools or uvicorn, and no other command loads them.
"""
