"""A home as work sees it: who submits, with which keys, what is stored under a digest, and where to ask.

One process has one backend for each home it works on. Its readers belong to threads, its cache to all of them: what was
written or read a moment ago, a payload on its way to a worker or a result on its way to the next step, is not read again.
"""

from __future__ import annotations

import copy
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from detent.canon import SigningKey, decode_trusted, digest_text, json_decode_trusted, parse_digest, sha256
from detent.canon.late import NamedTuple, dataclass
from detent.canon.strict_json import JsonValue
from detent.errors import DetentError, InvalidInput, StoreCorrupt, StoreUnavailable
from detent.executor.own_targets import needs_home
from detent.jobs.dedupe import ExecutionKey
from detent.jobs.order import Order, read_order
from detent.jobs.source_tree import base_below, place_below, tree_of
from detent.jobs.values import files_named, split_result_name
from detent.jobs.work import VALUE_INLINE_BYTES_MAX, WorkReport
from detent.kernel import Job, Manifest, Submit, same_partition
from detent.kernel.evidence import detail_of
from detent.kernel.identity import chosen
from detent.kernel.manifest import EVICTABLE_KINDS
from detent.kernel.queue import AT_HOME
from detent.ledger import sign_own_manifests, sign_results
from detent.ledger.schema import SubmittedManifest, read_submitted
from detent.ledger.signing import report_named
from detent.ledger.trust_config import ENROLL
from detent.owner.content import NONCE_BYTES, Content, open_trusted, open_value, seal_trusted, seal_value
from detent.owner.home import Home
from detent.owner.lock import TurnTaking
from detent.owner.policies import Chosen
from detent.owner.routing import FIRST
from detent.owner.session import Session
from detent.owner.wiring import Parts, load_trust, signing_key
from detent.store.api import NEVER_REUSED, StoreReader, WorkRow
from detent.store.content import ContentFiles

TENANT: Final = "local"
"""The workspace of a user's own home."""
CACHED_MAX: Final = 4096
CACHED_BYTES_MAX: Final = 64 * 1024
"""Content up to this size is kept in the cache, at most so many pieces of it."""

RANDOM_BLOCK_BYTES: Final = 4096
"""Random bytes drawn at once: a job needs three small pieces, each a call of the system otherwise."""

Inline = tuple[tuple[bytes, bytes], ...]


@dataclass(slots=True)
class Submission:
    """A job ready to be submitted: its manifest, the content it names, and its row in the index of work.

    `commands_of` signs the manifests of all that are submitted together, each once.
    """

    manifest: Manifest
    run_id: str | None
    key: SigningKey
    inline: Inline
    work: WorkRow
    command: Submit | None = None
    request: bytes | None = None
    """What the job asks of the scheduler: a session that pays for it, a pool, labels."""


def commands_of(submissions: Sequence[Submission]) -> list[Submit]:
    """The commands that submit some jobs; manifests that are not signed yet get one signature together."""
    unsigned = [submission for submission in submissions if submission.command is None]
    if unsigned:
        signed = sign_own_manifests([submission.manifest for submission in unsigned], unsigned[0].key)
        for submission, manifest in zip(unsigned, signed, strict=True):
            submission.command = Submit(0, manifest, submission.run_id, submission.request)
    return [submission.command for submission in submissions if submission.command is not None]


@dataclass(frozen=True, slots=True)
class Reported:
    """A signed report as it is stored."""

    digest: bytes
    report: WorkReport
    inline: Inline


class Submitted(NamedTuple):
    """What a job was asked to do, and the hash of the signed manifest that says so."""

    manifest_hash: bytes
    order: Order


class RandomBlocks:
    """Random bytes from the system, drawn in blocks. Safe for several threads; a forked child draws its own."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._block, self._at, self._pid = b"", 0, os.getpid()

    def __call__(self, count: int) -> bytes:
        """So many bytes that were given out to no other caller, in this process or another."""
        if os.getpid() != self._pid:
            self._begin()  # Its lock may have been held by a thread that is not in this process.
        with self._lock:
            end = self._at + count
            if end > len(self._block):
                self._block, end = os.urandom(max(RANDOM_BLOCK_BYTES, count)), count
            taken = self._block[end - count : end]
            self._at = end
        return taken


class Backend:
    """What a driver, a client and a supervisor of workers share."""

    def __init__(
        self,
        home: Home,
        session: Session,
        *,
        parts: Parts | None = None,
        tenant: str = TENANT,
        random: Callable[[int], bytes] | None = None,
        remembers: bool = True,
    ) -> None:
        """``remembers``: whether orders and content are kept in memory for workers of this process; a server has none."""
        self.home = home
        self._remembers = remembers
        self.session = session
        self.tenant = tenant
        self.random = random or RandomBlocks()
        self._parts = parts or Parts()
        self._clock = self._parts.clock
        self._files = home.content_files()
        self._trees = f"{home.trees}/"
        self._local = threading.local()
        self._closed = threading.Event()
        self._readers: list[StoreReader] = []
        self._lock = threading.Lock()
        self.wanted_by: Callable[[Order], Sequence[str]] = lambda order: order.limits.wanted
        """What the worker of a job must offer: `Runtime` knows what the home's own workers have."""
        self.turn = TurnTaking()
        self._cache: OrderedDict[bytes, bytes] = OrderedDict()
        self._orders: OrderedDict[bytes, Order] = OrderedDict()
        self._reports: OrderedDict[bytes, WorkReport] = OrderedDict()
        settings = home.settings()
        self._partitions = self.reader.partitions
        trust, size = load_trust(self.reader, settings), self.reader.head(FIRST).size
        # From the chain of trust that the home's settings pin, so nothing on the other side of a socket can tell another.
        self._origin = trust.origin
        self._has_workers_elsewhere = any(entry.role == ENROLL for entry in trust.config.keys)
        self._manifest_key = signing_key(home, trust, "manifest", size)
        self._result_key = signing_key(home, trust, "result", size)
        self.policies = settings.policies().of_server() if self._parts.serves else settings.policies()
        self._chosen: dict[tuple[str, tuple[tuple[str, str], ...]], Chosen] = {}

    @property
    def reader(self) -> StoreReader:
        """A reader of this thread's own; it sees every commit that was durable when it is asked."""
        reader: StoreReader | None = getattr(self._local, "reader", None)
        if reader is None or self._closed.is_set():
            if self._closed.is_set():
                raise StoreUnavailable(
                    f"the work on {self.home.path} was closed", hint="open it again", retryable=False
                )
            reader = self._local.reader = self._parts.read_ledger(self.home.ledger)
            with self._lock:
                self._readers.append(reader)
        return reader

    def now_ms(self) -> int:
        """The wall clock."""
        return self._clock.wall_ms()

    @property
    def partitions(self) -> int:
        """How many partitions the ledger has."""
        return self._partitions

    def new_job_id(self, beside: str | None = None) -> str:
        """An id that no other job has, in the partition of another job or run if that is named: what is beside it shares a commit."""
        suits = None if beside is None else same_partition(beside, self._partitions)
        return chosen(iter(self.new_uuid, None), suits)

    def new_uuid(self) -> str:
        """A UUID of version 4, as text: what `uuid.UUID` would write, without building one."""
        raw = self.random(16)
        text = f"{raw[:6].hex()}4{raw[6:8].hex()[1:]}{'89ab'[raw[8] & 3]}{raw[8:].hex()[1:]}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def close(self) -> None:
        """Close what was opened for reading."""
        with self._lock:
            self._closed.set()  # Later callers get an error.
            readers = list(self._readers)
            self._readers.clear()
        for reader in readers:
            reader.close()

    def for_tenant(self, tenant: str) -> Backend:
        """The same backend for the work of another workspace; both share readers, keys and caches, and are closed together."""
        if tenant == self.tenant:
            return self
        other = copy.copy(self)  # Everything in it that changes is shared: it is changed in place, never replaced.
        other.tenant = tenant
        return other

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- content -------------------------------------------------------------------------------------------------------

    def store(self, data: bytes) -> tuple[bytes, Inline]:
        """Get bytes ready to be named: their digest, and what the commit that names them has to carry."""
        staged = Content(self.reader, self._files).stage(data)
        self._remember(staged.digest, data)
        return staged.digest, staged.inline

    def content(self, digest: bytes) -> bytes | None:
        """The bytes with this digest; None when they were erased or never stored here."""
        with self._lock:
            data = self._cache.get(digest)
        if data is None:
            data = Content(self.reader, self._files).get(digest)
            if data is not None:
                self._remember(digest, data)
        return data

    def forget(self, digest: bytes) -> None:
        """Drop content from the cache that will not be asked for again; it stays stored."""
        with self._lock:
            self._cache.pop(digest, None)
            self._reports.pop(digest, None)

    def has_file(self, digest: bytes) -> bool:
        """Whether the content directory holds a file with this digest; its bytes are checked when they are read."""
        return self._files.has(digest)

    @property
    def files(self) -> ContentFiles:
        """The content directory: where files and large values lie."""
        return self._files

    def sealed(self, value: JsonValue, *, name: str) -> tuple[bytes, Inline]:
        """A value as content under a nonce (X-171)."""
        return self.store(seal_value(value, self.random(NONCE_BYTES), name=name))

    def sealed_trusted(self, value: JsonValue) -> tuple[bytes, Inline]:
        """The same for a value that was put together out of checked parts."""
        return self.store(seal_trusted(value, self.random(NONCE_BYTES)))

    def unsealed(self, digest: bytes) -> JsonValue:
        """The value of sealed content; `StoreCorrupt` when it is gone."""
        data = self.content(digest)
        if data is None:
            raise StoreCorrupt(f"content {digest_text(digest)} is gone", hint="it was erased, or the home is damaged")
        return open_value(data)

    def _read_ahead(self, digests: Sequence[bytes]) -> None:
        """Read content that will be asked for, piece by piece, in one go."""
        with self._lock:
            unread = [digest for digest in digests if digest not in self._cache]
        for digest, data in self.reader.contents(unread):
            self._remember(digest, data)

    def _remember(self, digest: bytes, data: bytes) -> None:
        if len(data) > CACHED_BYTES_MAX or not self._remembers:
            return
        with self._lock:
            self._cache[digest] = data
            if len(self._cache) > CACHED_MAX:
                self._cache.popitem(last=False)

    # -- orders --------------------------------------------------------------------------------------------------------

    def submission(
        self,
        order: Order,
        *,
        job_id: str,
        job_kind: str,
        priority: int,
        key: ExecutionKey | Sequence[ExecutionKey | None] | None,
        run_id: str | None = None,
        tenant: str | None = None,
    ) -> Submission:
        """Make a job of an order, its payload stored. ``tenant`` is the home's own unless it is given.

        An array has a ``key`` for each of its elements instead of one of its own.
        """
        tenant = tenant or self.tenant
        # Everything in an order was checked where it came in: the contract when it was loaded, results by their worker.
        named = order
        if order.call.base is not None and order.call.base.startswith(self._trees):
            named = order.at(base_below(self._trees, order.call.base))
        digest, inline = self.store(seal_trusted(named.document(), self.random(NONCE_BYTES)))
        if self._remembers:
            self._orders[digest] = order
        if len(self._orders) > CACHED_MAX:
            self._orders.popitem(last=False)
        now, retries = self.now_ms(), order.limits.retries
        chosen = self.chosen(order.limits.policies, tenant)
        manifest = Manifest(
            tenant,
            job_id,
            job_kind,
            digest,
            priority,
            chosen.quota_policy_hash,
            now,
            chosen.lease_policy_id,
            chosen.backoff_schedule_id,
            max_retries=retries.max,
            retry_categories=retries.on,
            # All that comes this way waits for room in a full queue, so nothing of it may be dropped. Kinds that
            # are never dropped need not say so.
            evictable=job_kind not in EVICTABLE_KINDS,
            origin=self._origin,
        )
        own, keys = NEVER_REUSED, tuple[bytes | None, ...]()
        if isinstance(key, str):
            own = parse_digest(key)
        elif key is not None and any(key):
            own, keys = digest, tuple([None if one is None else parse_digest(one) for one in key])
        work = WorkRow(tenant, own, job_id, order.label, now, element_keys=keys, pool=order.limits.pool)
        return Submission(manifest, run_id, self._manifest_key, inline, work, request=self._request(named))

    def _request(self, order: Order) -> bytes | None:
        """What an order asks of the scheduler; None where any worker would do."""
        wanted = self.wanted_by(order) if order.limits.asks else ()
        if self._has_workers_elsewhere and needs_home(order.call):
            wanted = (AT_HOME,)
        if not wanted:
            return None
        from detent.scheduling.orders import write_request  # noqa: PLC0415 - most work asks for nothing

        return write_request(labels=list(wanted))

    def chosen(self, names: Mapping[str, str], tenant: str | None = None) -> Chosen:
        """The policies of a tenant's job that names these; refuses a name that the settings do not define."""
        owner = tenant or self.tenant
        key = (owner, tuple(names.items()))
        chosen = self._chosen.get(key)
        if chosen is None:
            chosen = self._chosen[key] = self.policies.chosen(names, owner)
        return chosen

    def order(self, payload_digest: bytes) -> Order:
        """The order that a job's payload is."""
        order = self._orders.pop(payload_digest, None)  # A worker asks once; a second attempt can read it.
        if order is not None:
            return order
        order = read_order(self.unsealed(payload_digest))
        if (named := tree_of(order.call.base)) is not None:
            from detent.store.trees import lay_out_again  # noqa: PLC0415 - most work has its code in a directory

            lay_out_again(self.home.path, named[0], self._files)
        return _at_home(order, self._trees)

    def submitted(self, job_ids: Sequence[str]) -> dict[str, Submitted]:
        """What jobs were asked to do, by the manifests that their submitters signed; those that can still be read.

        Not by the jobs' rows, which are not signed.
        """
        found: dict[str, SubmittedManifest] = {}
        for record in self.reader.submissions(job_ids):
            signed = None if record.evidence is None else read_submitted(record.evidence)
            if isinstance(signed, SubmittedManifest) and signed.job_id == record.job_id:
                found[signed.job_id] = signed
        self._read_ahead([signed.payload_digest for signed in found.values()])
        orders = ((job_id, signed, self._readable_order(signed.payload_digest)) for job_id, signed in found.items())
        return {job_id: Submitted(sha256(signed.body), order) for job_id, signed, order in orders if order is not None}

    def _readable_order(self, payload_digest: bytes) -> Order | None:
        known = self._orders.get(payload_digest)
        if known is not None:
            return known
        try:
            data = self.content(payload_digest)
            # It is compared with ingredients that were made here. A worker that runs an order reads it strictly.
            return None if data is None else _at_home(read_order(open_trusted(data)), self._trees)
        except (DetentError, TypeError, ValueError, RecursionError):
            return None  # Damaged, or of another kind.

    # -- reports -------------------------------------------------------------------------------------------------------

    def sign(self, report: WorkReport) -> Reported:
        """Sign a report as this home's executor."""
        return self.sign_together([(report, report.body())])[0]

    def sign_together(self, reports: Sequence[tuple[WorkReport, bytes]]) -> list[Reported]:
        """Sign some reports, each given with its body, as this home's executor: one signature covers them all."""
        signed = sign_results([body for _, body in reports], self._result_key)
        stored = [self.store(result.envelope()) for result in signed]
        return [Reported(digest, report, inline) for (report, _), (digest, inline) in zip(reports, stored, strict=True)]

    def report(self, digest: bytes) -> WorkReport | None:
        """A stored report; None when it is gone. Raises `InvalidInput` for content that is none."""
        with self._lock:
            known = self._reports.get(digest)
        if known is not None or (data := self.content(digest)) is None:
            return known
        envelope = decode_trusted(data)
        if not isinstance(envelope, dict) or type(envelope.get("body")) is not bytes:
            raise InvalidInput("a signed result is a map of body and sig")
        report = WorkReport.read(envelope["body"])
        with self._lock:
            self._reports[digest] = report
            if len(self._reports) > CACHED_MAX:
                self._reports.popitem(last=False)
        return report

    def report_of(self, job_id: str, job: Job | None = None) -> tuple[bytes, WorkReport] | None:
        """The report that ended a job, with its digest; None when the job has not ended by one, or it is gone."""
        if job is None:
            row = self.reader.job(job_id)
            job = None if row is None else Job.read(row.body)
        record = None if job is None or job.exit_seq is None else self.reader.transition(job_id, job.exit_seq)
        if record is None or record.evidence is None:
            return None
        digest = detail_of(record.evidence)
        report = None if digest is None else self._readable(digest)
        return None if digest is None or report is None else (digest, report)

    def array_report(self, job_id: str) -> tuple[bytes, WorkReport] | None:
        """The newest report of an array that tells of its elements, with its digest; None when there is none, or it is gone.

        Each takes over what those before it told. An attempt that was refused tells of no elements.
        """
        named = (record.evidence and report_named(record.evidence) for record in self.reader.records_of_job(job_id))
        for digest in reversed([digest for digest in named if digest]):
            report = self._readable(digest)
            if report is not None and report.result.elements is not None:
                return digest, report
        return None

    def reports_of(self, jobs: Sequence[Job]) -> dict[str, tuple[bytes, WorkReport]]:
        """The same for many jobs in few reads, by job id; those that there are."""
        wanted = [(job.job_id, job.exit_seq) for job in jobs if job.exit_seq is not None]
        named: dict[str, bytes] = {}
        for record in self.reader.transitions(wanted):
            digest = None if record.evidence is None else detail_of(record.evidence)
            if digest is not None and record.job_id is not None:
                named[record.job_id] = digest
        with self._lock:
            unread = [digest for digest in named.values() if digest not in self._reports]
        self._read_ahead(unread)
        reports = ((job_id, digest, self._readable(digest)) for job_id, digest in named.items())
        return {job_id: (digest, report) for job_id, digest, report in reports if report is not None}

    def value(self, report: WorkReport) -> JsonValue:
        """The stored value of a report; see `detent.jobs.values` for its forms."""
        return None if (data := self.value_bytes(report)) is None else json_decode_trusted(data)

    def value_bytes(self, report: WorkReport) -> bytes | None:
        """The same as its strict JSON; None when there is none."""
        if report.value_content is None:
            return report.result.value
        data = self.content(report.value_content)
        if data is None:
            raise StoreCorrupt(
                f"the value {digest_text(report.value_content)} of job {report.job_id} is gone",
                hint="it was erased, or the home is damaged; run the step again with --force",
            )
        return data

    def result(self, named: str) -> WorkReport | None:
        """The report of a result, or of one element's, by its name; None when it is gone."""
        digest, element = split_result_name(named)
        report = self.report(digest)
        return report if report is None or element is None else report.of_element(element)

    def result_value(self, named: str) -> bytes | Path:
        """The stored value of a result, by its name: its strict JSON, or the file that holds it when it is large."""
        report = self.result(named)
        if report is None:
            raise StoreCorrupt(
                f"the result {named} is gone",
                hint="it was erased, or the home is damaged; run its step again with --force",
            )
        if report.value_content is not None and self.has_file(report.value_content):
            return self._files.path(report.value_content)
        return self.value_bytes(report) or b"null"

    def is_whole(self, report: WorkReport) -> bool:
        """Whether everything that belongs to a report is still there."""
        inline = {file.digest for file in report.result.files}
        whole = all(
            self.has_file(digest) if digest in inline else self.content(digest) is not None or self.has_file(digest)
            for digest in report.contents()
        )
        if not whole or report.value_content is None:
            return whole
        value = self.value_bytes(report)  # A small value's files are named by the report.
        if value is None or b'"$file"' not in value:
            return value is not None
        return all(self.has_file(parse_digest(named)) for named in files_named(json_decode_trusted(value)))

    def stored_value(self, value: bytes | None) -> tuple[bytes | None, bytes | None, Inline]:
        """A value's strict JSON where it belongs: in the report, or as content of its own."""
        if value is None or len(value) <= VALUE_INLINE_BYTES_MAX:
            return value, None, ()
        digest, inline = self.store(value)
        return None, digest, inline

    def _readable(self, digest: bytes) -> WorkReport | None:
        try:
            return self.report(digest)
        except InvalidInput:
            return None  # A result of another kind, or of another version.


def joined(parts: Iterable[Sequence[tuple[bytes, bytes]]]) -> list[tuple[bytes, bytes]]:
    """Content of several commands for one commit, each piece once."""
    together: dict[bytes, bytes] = {}
    for part in parts:
        together.update(part)
    return list(together.items())


def _at_home(order: Order, trees: str) -> Order:
    """An order whose code is where a home has it."""
    return order.at(place_below(trees, order.call.base))
