"""A home and two bundles of the first version that stores records in less room, kept for ever.

Six steps of a run and 40 single jobs: the manifests of each were signed together, and so were the reports of the single jobs that
arrived together. Their decisions lie with their commits, and their records are packed. The archive was made once, by

    python -m tests.golden.packed

which draws keys, ids and times anew: it is not made again, because what it has to show is that these very bytes verify.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from pathlib import Path

import detent
from detent.inspect.export import export
from detent.owner.home import Home
from detent.owner.state_directory import state_directory
from detent.store.sqlite.database import empty_wal
from tests.golden.make import FOLDER

ARCHIVE = FOLDER / "packed.tar.gz"
STEPS = 6
JOBS = 40


@detent.task(cache=False)
def echo(x: int) -> int:
    """Give back the argument."""
    return x


@detent.flow
def fan() -> list[int]:
    """Steps that are ready together."""
    return [echo(number) for number in range(STEPS)]


def unpack_packed(directory: Path) -> None:
    """Unpack ``home``, ``all.detent`` and ``run.detent``."""
    with tarfile.open(ARCHIVE) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(directory)


def main() -> None:
    """Make the archive."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        os.environ["XDG_STATE_HOME"] = str(place / "state")
        run = detent.run(fan.contract(), home=place / "home", workers=1)
        with detent.Client(place / "home", workers=1) as client:
            for handle in client.submit_many(echo, [(number,) for number in range(JOBS)]):
                handle.result()
        home = Home(place / "home")
        assert state_directory(os.environ).is_relative_to(place)
        export(home, place / "all.detent", with_content=True, environment=os.environ)
        export(home, place / "run.detent", run_id=run.run_id, environment=os.environ)
        print("root", home.settings().root.hex(), "run", run.run_id)  # noqa: T201 - for the test that pins it
        assert empty_wal(home.ledger)
        with tarfile.open(ARCHIVE, "w:gz") as archive:
            for name in ("config.toml", ".gitignore", "content", "keys", "ledger.db"):
                archive.add(place / "home" / name, f"home/{name}")
            for name in ("all.detent", "run.detent"):
                archive.add(place / name, name)


if __name__ == "__main__":
    main()
