"""Submit calls from a program to a Detent server, and use their results as they come.

    DETENT_URL=http://127.0.0.1:7733 DETENT_KEY=dtk_... python application.py 2026-10 2026-11

The server runs `build` of its own project; this program names the function and sends the arguments. What was submitted goes on if the
program ends, and the same months asked for again are not built again.
"""

import os
import sys

from reports import build

import detent


def main(months: list[str]) -> int:
    """Build the reports of some months; 1 when one of them fails."""
    failed = 0
    with detent.Client(os.environ["DETENT_URL"]) as client:
        reports = client.submit_many(build, [(month,) for month in months], reuse=True)
        for month, report in zip(months, reports, strict=True):
            try:
                print(f"{month}: {report.result(timeout='5m')['days']} days")
            except detent.TaskFailed as error:
                failed = 1
                print(f"{month}: {error}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
