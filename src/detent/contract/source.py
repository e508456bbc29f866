"""Python source inside a contract: parsed, never compiled to code, never run."""

from __future__ import annotations

import ast
import warnings

from detent.contract.findings import Spot
from detent.contract.limits import SOURCE_BYTES_MAX


def check_source(source: str, entrypoint: str | None, spot: Spot) -> None:
    """Report source that is too large, that Python could not parse, or that does not define its entry point.

    ``entrypoint`` None: it is bad itself, which has been said.
    """
    if len(source.encode(errors="replace")) > SOURCE_BYTES_MAX:
        spot.fault(
            f"code of more than {SOURCE_BYTES_MAX // 1024} KiB",
            "keep it in a file and name that: `python: file.py:function`",
        )
        return
    try:
        with warnings.catch_warnings():
            # Python warns about an odd escape in a string when the code runs.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except SyntaxError as exc:
        line = exc.lineno or 1
        message = f"the code is not valid Python: {exc.msg} (line {line} of the code)"
        spot.fault(
            message, "mind that the indentation of the block does not count", inner=(line, max(exc.offset or 1, 1))
        )
    except (ValueError, RecursionError, MemoryError) as exc:
        spot.fault(f"the code cannot be parsed: {_reason(exc)}", "keep it in a file, or make it simpler")
    else:
        if entrypoint is not None and entrypoint not in _defined(tree):
            names = [name for name in _defined(tree) if not name.startswith("_")]
            hint = spot.report.nearest(entrypoint, names) or (
                f"name one with `entrypoint: {names[0]}`" if names else f"define it: `def {entrypoint}(...):`"
            )
            spot.fault(f"the code defines no function {entrypoint!r:.80}", hint)


def _defined(tree: ast.Module) -> list[str]:
    """Names that calling the module's source would leave behind and that could be called."""
    names = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names += [alias.asname or alias.name for alias in node.names]
    return names


def _reason(exc: BaseException) -> str:
    return str(exc) if isinstance(exc, ValueError) else "it is nested too deeply"
