"""Which edits change the digest of a function's code, and which do not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from detent.reuse.ingredients import CodeReader, source_digest
from tests.reuse.ingredients.projects import edit, look, resolved, write

PIPELINE = """
    import helpers

    LIMIT = 3

    def step(x):
        return helpers.clean(x) + LIMIT

    def other(x):
        return helpers.unused(x)
"""
HELPERS = """
    def clean(x):
        return _inner(x)

    def _inner(x):
        return x + 1

    def unused(x):
        return x + 2
"""


class Case(NamedTuple):
    """A project, and pairs of (file, old, new) that count or do not."""

    files: dict[str, str]
    counts: list[tuple[str, str, str]]
    ignored: list[tuple[str, str, str]]


CASES = {
    "a helper of a helper": Case(
        {"pipeline.py": PIPELINE, "helpers.py": HELPERS},
        [
            ("pipeline.py", "LIMIT = 3", "LIMIT = 4"),
            ("pipeline.py", "clean(x) + LIMIT", "clean(x) - LIMIT"),
            ("helpers.py", "_inner(x)\n\ndef", "_inner(x) or 1\n\ndef"),
            ("helpers.py", "x + 1", "x + 11"),
        ],
        [
            ("helpers.py", "x + 2", "x + 22"),
            ("pipeline.py", "unused(x)", "unused(x) + 1"),
            ("helpers.py", "x + 1", "(x  +  1)  # one more"),
            ("pipeline.py", "LIMIT = 3\n", "LIMIT = 3\n\n\n# a comment\n\n"),
        ],
    ),
    "names imported one by one, and under another name": Case(
        {
            "pipeline.py": "from lib.a import f as g, h\nfrom lib import b\ndef step():\n    return g() + b.k()\n",
            "lib/__init__.py": "",
            "lib/a.py": "def f():\n    return 1\ndef h():\n    return 2\n",
            "lib/b.py": "from . import c\ndef k():\n    return c.VALUE\ndef n():\n    return 4\n",
            "lib/c.py": "VALUE = 5\nOTHER = 6\n",
        },
        [
            ("lib/a.py", "return 1", "return 10"),
            ("lib/c.py", "VALUE = 5", "VALUE = 50"),
            ("pipeline.py", "f as g, h", "h as g, f"),
        ],
        [
            ("lib/a.py", "return 2", "return 20"),
            ("lib/b.py", "return 4", "return 40"),
            ("lib/c.py", "OTHER = 6", "OTHER = 60"),
            ("pipeline.py", "as g, h", "as g"),
        ],
    ),
    "a dotted import, and one under another name": Case(
        {
            "pipeline.py": "import a.b\nimport a.c as d\ndef step():\n    return a.b.f() + d.g()\n",
            "a/__init__.py": "import os\nSIZE = 1\n",
            "a/b.py": "def f():\n    return 1\ndef x():\n    return 2\n",
            "a/c.py": "def g():\n    return 3\ndef y():\n    return 4\n",
        },
        [("a/b.py", "return 1", "return 9"), ("a/c.py", "return 3", "return 9")],
        [("a/b.py", "return 2", "return 9"), ("a/c.py", "return 4", "return 9"), ("a/__init__.py", "= 1", "= 9")],
    ),
    "a name that a package hands on": Case(
        {
            "pipeline.py": "from lib import clean\ndef step():\n    return clean()\n",
            "lib/__init__.py": "from .impl import clean, wash\n",
            "lib/impl.py": "def clean():\n    return 1\ndef wash():\n    return 2\n",
        },
        [("lib/impl.py", "return 1", "return 9"), ("lib/__init__.py", "clean, wash", "wash as clean")],
        [("lib/impl.py", "return 2", "return 9")],
    ),
    "a function with the name of its module": Case(
        {
            "pipeline.py": "from lib import clean\nimport lib\ndef step():\n    return clean() + lib.wash.f()\n",
            "lib/__init__.py": "from .clean import clean\nfrom . import wash\n",
            "lib/clean.py": "def clean():\n    return 1\ndef free():\n    return 2\n",
            "lib/wash.py": "def f():\n    return 3\ndef free():\n    return 4\n",
        },
        [("lib/clean.py", "return 1", "return 9"), ("lib/wash.py", "return 3", "return 9")],
        [("lib/clean.py", "return 2", "return 9"), ("lib/wash.py", "return 4", "return 9")],
    ),
    "everything imported by a star": Case(
        {
            "pipeline.py": "from lib import *\ndef step():\n    return clean()\n",
            "lib.py": "def clean():\n    return 1\ndef wash():\n    return 2\n",
        },
        [("lib.py", "return 1", "return 9")],
        [("lib.py", "return 2", "return 9")],
    ),
    "a module that is handed around whole": Case(
        {
            "pipeline.py": "import lib\ndef step(name):\n    return getattr(lib, name)()\n",
            "lib.py": "def clean():\n    return 1\nprint('hello')\n",
        },
        [("lib.py", "return 1", "return 9"), ("lib.py", "hello", "bye")],
        [],
    ),
    "a class with its bases": Case(
        {
            "pipeline.py": """
                class Base:
                    def run(self):
                        return self.size

                class Cleaner(Base):
                    size = 1

                class Other(Base):
                    size = 2

                def step():
                    return Cleaner().run()
            """
        },
        [("pipeline.py", "size = 1", "size = 9"), ("pipeline.py", "self.size", "self.size + 1")],
        [("pipeline.py", "size = 2", "size = 9")],
    ),
    "decorators, defaults and closures": Case(
        {
            "pipeline.py": """
                START = 1
                STEP = 2
                UNUSED = 3

                def twice(f):
                    def inner(*args):
                        return f(*args) + STEP
                    return inner

                def unused(f):
                    return f

                @twice
                def step(x=START):
                    UNUSED = 5
                    return [START for START in range(x)] or (lambda unused: unused)(UNUSED)
            """
        },
        [
            ("pipeline.py", "START = 1", "START = 9"),
            ("pipeline.py", "STEP = 2", "STEP = 9"),
            ("pipeline.py", "@twice\n", "@unused\n"),
        ],
        [("pipeline.py", "UNUSED = 3", "UNUSED = 9"), ("pipeline.py", "    return f\n\n@", "    return f or 1\n\n@")],
    ),
    "definitions under conditions": Case(
        {
            "pipeline.py": """
                import sys
                from typing import TYPE_CHECKING

                if TYPE_CHECKING:
                    from nowhere import Thing

                if sys.platform == "linux":
                    def clean():
                        return 1
                    def wash():
                        return 5
                else:
                    def clean():
                        return 2

                try:
                    import surely_not_installed as fast
                except ImportError:
                    fast = None

                def step(x: "Thing"):
                    return clean() if fast is None else fast.clean()

                if __name__ == "__main__":
                    print(step(3))
            """
        },
        [
            ("pipeline.py", "return 1", "return 9"),
            ("pipeline.py", "return 2", "return 9"),
            ("pipeline.py", '"linux"', '"win32"'),
            ("pipeline.py", "fast = None", "fast = 0"),
        ],
        [("pipeline.py", "print(step(3))", "print(step(4))"), ("pipeline.py", "return 5", "return 9")],
    ),
    "an import under a condition": Case(
        {
            "pipeline.py": """
                FAST = False
                FREE = False
                if FAST:
                    try:
                        from surely_not_installed import f
                    except ImportError:
                        from fast import f
                else:
                    from slow import f

                def step():
                    return f()
            """,
            "fast.py": "def f():\n    return 1\n",
            "slow.py": "def f():\n    return 2\n",
        },
        [
            ("pipeline.py", "FAST = False", "FAST = True"),
            ("fast.py", "return 1", "return 9"),
            ("slow.py", "return 2", "return 9"),
        ],
        [("pipeline.py", "FREE = False", "FREE = True")],
    ),
    "names of a module that another module replaces": Case(
        {
            "pipeline.py": """
                import lib
                import patches
                lib.LIMIT = 5
                setattr(lib, "SIZE", 6)
                lib.FREE = 7

                def step():
                    return lib.LIMIT + lib.SIZE + lib.clean()
            """,
            "lib.py": "LIMIT = 1\nSIZE = 2\nFREE = 3\ndef clean():\n    return 4\n",
            "patches.py": "import lib\nlib.clean = lambda: 8\n",
        },
        [
            ("pipeline.py", "LIMIT = 5", "LIMIT = 9"),
            ("pipeline.py", '"SIZE", 6', '"SIZE", 9'),
            ("patches.py", "lambda: 8", "lambda: 9"),
        ],
        [("pipeline.py", "FREE = 7", "FREE = 9")],
    ),
    "a table that later statements fill": Case(
        {
            "pipeline.py": """
                from table import TABLE, other
                import plugins

                LIST = []
                UNTOUCHED = []
                LIST.append(1)
                LIST += [2]
                for item in range(3):
                    LIST.append(item)
                UNTOUCHED.append(7)

                def step(name):
                    return TABLE[name](LIST)
            """,
            "table.py": """
                TABLE = {}

                def register(name):
                    def inner(f):
                        TABLE[name] = f
                        return f
                    return inner

                def other(f):
                    return f
            """,
            "plugins.py": """
                import table
                from table import TABLE, register

                @register("clean")
                def clean():
                    return 1

                @table.other
                def free():
                    return 2

                def wash():
                    return 3
                TABLE["wash"] = wash

                def fill(target):
                    target["x"] = 4
                fill(TABLE)
                setattr(table, "LATER", 5)
            """,
        },
        [
            ("pipeline.py", "append(1)", "append(9)"),
            ("pipeline.py", "+= [2]", "+= [9]"),
            ("pipeline.py", "range(3)", "range(9)"),
            ("plugins.py", "return 1", "return 9"),
            ("plugins.py", "return 3", "return 9"),
            ("plugins.py", '"clean"', '"dry"'),
            ("plugins.py", '["x"] = 4', '["x"] = 9'),
        ],
        [("pipeline.py", "append(7)", "append(9)"), ("plugins.py", "return 2", "return 9")],
    ),
    "classes that register themselves": Case(
        {
            "pipeline.py": """
                class Plugin:
                    known = []
                    def __init_subclass__(cls):
                        Plugin.known.append(cls)

                class First(Plugin):
                    size = 1

                class Free:
                    size = 2

                def step():
                    return [each.size for each in Plugin.known]
            """
        },
        [("pipeline.py", "size = 1", "size = 9")],
        [("pipeline.py", "size = 2", "size = 9")],
    ),
    "settings of another project's module": Case(
        {
            "pipeline.py": """
                import decimal
                import random
                decimal.getcontext().prec = 50
                random.seed(1)

                def step(x):
                    return decimal.Decimal(x)
            """
        },
        [("pipeline.py", "prec = 50", "prec = 60")],
        [("pipeline.py", "seed(1)", "seed(2)")],
    ),
    "imports inside a function": Case(
        {
            "pipeline.py": "def step():\n    from lib import clean\n    import table\n    return clean(table.ROWS)\n",
            "lib.py": "import table\ntable.ROWS.append(1)\ndef clean(x):\n    return x\ndef wash():\n    return 2\n",
            "table.py": "ROWS = []\nFREE = 3\n",
        },
        [("lib.py", "return x", "return x[1:]"), ("lib.py", "append(1)", "append(9)"), ("table.py", "[]", "[0]")],
        [("lib.py", "return 2", "return 9"), ("table.py", "FREE = 3", "FREE = 9")],
    ),
    "a module that is loaded by a name written there": Case(
        {
            "pipeline.py": "import importlib\ndef step():\n    return importlib.import_module('lib').clean()\n",
            "lib.py": "def clean():\n    return 1\n",
        },
        [("lib.py", "return 1", "return 9")],
        [],
    ),
    "annotations where they are evaluated": Case(
        {
            "pipeline.py": """
                from __future__ import annotations

                class Shape:
                    size = 1

                class Row:
                    shape: Shape

                class Free:
                    size = 2

                def step(row: Free):
                    local: Free = row
                    return Row()
            """
        },
        [("pipeline.py", "size = 1", "size = 9"), ("pipeline.py", "row: Free", "row: Row")],
        [("pipeline.py", "size = 2", "size = 9")],
    ),
    "what the module says about itself": Case(
        {"pipeline.py": '"""Help."""\n\ndef step():\n    """Doc."""\n    return __doc__, __name__, __file__\n'},
        [("pipeline.py", "Help.", "Hilfe."), ("pipeline.py", "Doc.", "Dok.")],
        [],
    ),
    "the same names, exchanged": Case(
        {
            "pipeline.py": "from lib import a as x, b as y\nfrom math import sqrt as z\ndef step():\n    return x() - y() - z(4)\n",
            "lib.py": "def a():\n    return 1\ndef b():\n    return 2\n",
        },
        [("pipeline.py", "a as x, b as y", "b as x, a as y"), ("pipeline.py", "sqrt as z", "cbrt as z")],
        [("pipeline.py", "a as x, b as y", "b as y, a as x")],
    ),
    "what cannot be changed in place": Case(
        {
            "pipeline.py": "BASE = 'a'\nROWS = []\nFREE = BASE.upper() + '1'\nFIRST = ROWS.pop('2')\ndef step():\n    return BASE, ROWS\n"
        },
        [("pipeline.py", "'2'", "'9'")],
        [("pipeline.py", "'1'", "'9'")],
    ),
    "what only a type checker sees": Case(
        {
            "pipeline.py": """
                from typing import TYPE_CHECKING
                if TYPE_CHECKING:
                    LIMIT = 1
                else:
                    LIMIT = 2
                def step():
                    return LIMIT
            """
        },
        [("pipeline.py", "LIMIT = 2", "LIMIT = 9")],
        [("pipeline.py", "LIMIT = 1", "LIMIT = 9")],
    ),
    "a name that a function imports and assigns": Case(
        {
            "pipeline.py": "def step():\n    lib = None\n    import lib\n    return lib.f()\n",
            "lib.py": "def f():\n    return 1\ndef free():\n    return 2\n",
        },
        [("lib.py", "return 1", "return 9")],
        [("lib.py", "return 2", "return 9")],
    ),
    "a value that functions replace": Case(
        {
            "pipeline.py": """
                LIMIT = 1
                FREE = 2

                def raise_limit(by):
                    global LIMIT
                    LIMIT += by

                raise_limit(3)

                def step():
                    return LIMIT
            """
        },
        [("pipeline.py", "LIMIT = 1", "LIMIT = 9"), ("pipeline.py", "raise_limit(3)", "raise_limit(9)")],
        [("pipeline.py", "FREE = 2", "FREE = 9")],
    ),
    "circles": Case(
        {
            "pipeline.py": "import lib\ndef step(n):\n    return n and lib.back(n - 1)\n",
            "lib.py": "import pipeline\ndef back(n):\n    return pipeline.step(n)\ndef free():\n    return 1\n",
        },
        [("lib.py", "step(n)", "step(n - 1)")],
        [("lib.py", "return 1", "return 9")],
    ),
}
EDITS = [
    pytest.param(case, found, counts, id=f"{name}: {found[0]} {found[1][:20]!r} -> {found[2][:20]!r}")
    for name, case in CASES.items()
    for counts, edits in ((True, case.counts), (False, case.ignored))
    for found in edits
]


@pytest.mark.parametrize(("case", "found", "counts"), EDITS)
def test_an_edit_counts_if_the_function_reaches_it_and_only_then(
    case: Case, found: tuple[str, str, str], counts: bool, tmp_path: Path
) -> None:
    """X-176: edit a helper, dependents run; edit another function in the same file, they do not"""
    write(tmp_path, case.files)
    before = resolved(tmp_path)
    edit(tmp_path, *found)
    assert (resolved(tmp_path) != before) is counts


def test_our_own_decorators_and_their_options_do_not_count(tmp_path: Path) -> None:
    """X-176: options stand in the binding"""
    plain = "{}\ndef step(x):\n    return x\n"
    digests = set()
    for head in (
        "",
        "import detent\n@detent.task",
        "import detent\n@detent.task(retries=3)",
        "from detent import task as t\n@t",
    ):
        write(tmp_path, {"pipeline.py": plain.format(head)})
        digests.add(resolved(tmp_path))
        assert look(tmp_path).distributions == {}
    assert len(digests) == 1


def test_a_method_counts_with_its_whole_class(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"pipeline.py": "class C:\n    def a(self):\n        return self.b()\n    def b(self):\n        return 1\n"},
    )
    before = resolved(tmp_path, "pipeline:C.a")
    edit(tmp_path, "pipeline.py", "return 1", "return 2")
    assert resolved(tmp_path, "pipeline:C.a") != before
    assert look(tmp_path, "pipeline:C.missing").digest is None


def test_a_file_is_named_by_its_path_and_finds_modules_from_the_base(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "tools/run-it.py": "import helpers\ndef step():\n    return helpers.f()\n",
            "helpers.py": "def f():\n    return 1\n",
        },
    )
    code = look(tmp_path, "tools/run-it.py:step")
    assert list(code.parts) == ["helpers:f", "tools/run-it.py:step"]
    assert code.kinds == {"helpers:f": "function", "tools/run-it.py:step": "function"}
    before = code.digest
    edit(tmp_path, "helpers.py", "return 1", "return 2")
    assert resolved(tmp_path, "tools/run-it.py:step") != before


def test_parts_say_what_changed(tmp_path: Path) -> None:
    write(tmp_path, {"pipeline.py": PIPELINE, "helpers.py": HELPERS})
    before = look(tmp_path).parts
    edit(tmp_path, "helpers.py", "x + 1", "x + 5")
    after = look(tmp_path).parts
    assert list(after) == ["helpers:_inner", "helpers:clean", "pipeline:LIMIT", "pipeline:step"]
    assert [name for name in after if after[name] != before[name]] == ["helpers:_inner"]


def test_with_a_version_nothing_is_read(tmp_path: Path) -> None:
    """X-176"""
    first = CodeReader(tmp_path).digest("nowhere:step", version="1")
    assert first.digest is not None
    assert first.digest == CodeReader(tmp_path).digest("nowhere:step", version="1").digest
    assert first.digest != CodeReader(tmp_path).digest("nowhere:step", version="2").digest
    assert first.digest != CodeReader(tmp_path).digest("nowhere:other", version="1").digest


def test_functions_of_python_itself_count_by_name(tmp_path: Path) -> None:
    """X-176: builtins by Python version"""
    reader = CodeReader(tmp_path)
    digests = [reader.digest(target).digest for target in ("builtins:sum", "builtins:max", "statistics:mean")]
    assert None not in digests
    assert len(set(digests)) == 3


def test_one_reader_sees_one_state_and_the_next_one_the_next(tmp_path: Path) -> None:
    write(tmp_path, {"pipeline.py": PIPELINE, "helpers.py": HELPERS})
    reader = CodeReader(tmp_path, path=())
    before = reader.digest("pipeline:step").digest
    edit(tmp_path, "helpers.py", "x + 1", "x + 3")
    assert reader.digest("pipeline:step").digest == before
    assert resolved(tmp_path) != before


def test_a_module_that_was_provided_for_counts_once_it_is_there(tmp_path: Path) -> None:
    source = "try:\n    import fast\nexcept ImportError:\n    fast = None\ndef step():\n    return fast and fast.f()\n"
    write(tmp_path, {"pipeline.py": source})
    before = resolved(tmp_path)
    write(tmp_path, {"fast.py": "def f():\n    return 1\n"})
    after = resolved(tmp_path)
    assert after != before
    edit(tmp_path, "fast.py", "return 1", "return 2")
    assert resolved(tmp_path) != after


UNTOLD = {
    "eval": ("def step(x):\n    return eval(x)\n", "eval", 2),
    "eval that is provided for": (
        "def step(x):\n    try:\n        return eval(x)\n    except Exception:\n        return 1\n",
        "eval",
        3,
    ),
    "exec handed on": ("def step(x):\n    return map(exec, x)\n", "exec", 2),
    "eval under its full name": ("import builtins\ndef step(x):\n    return builtins.eval(x)\n", "builtins.eval", 3),
    "a computed module": (
        "import importlib\ndef step(x):\n    return importlib.import_module(x)\n",
        "importlib.import_module",
        3,
    ),
    "a computed module, by another name": (
        "from importlib import import_module as load\ndef step(x):\n    return load(x)\n",
        "importlib.import_module",
        3,
    ),
    "a computed module, the old way": ("def step(x):\n    return __import__(x)\n", "__import__", 2),
    "computed globals": ("def step(x):\n    return globals()[x]\n", "globals", 2),
    "sys.modules": ("import sys\ndef step(x):\n    return sys.modules[x]\n", "sys.modules", 3),
    "a file as code": ("import runpy\ndef step(x):\n    return runpy.run_path(x)\n", "runpy.run_path", 3),
    "a name that is nowhere": ("def step(x):\n    return missing(x)\n", "missing", 2),
    "a module that is nowhere": (
        "import surely_not_installed\ndef step(x):\n    return surely_not_installed.f(x)\n",
        "surely_not_installed",
        3,
    ),
    "an attribute that is nowhere": ("import lib\ndef step(x):\n    return lib.missing(x)\n", "lib.missing", 3),
    "a name that only a script has": (
        "if __name__ == '__main__':\n    rows = 1\ndef step():\n    return rows\n",
        "rows",
        4,
    ),
    "a name of its class only": ("class step:\n    size = 1\n    def m(self):\n        return size\n", "size", 4),
    "a computed part of a package": ("import pack\ndef step(x):\n    return getattr(pack, x)\n", "pack", 3),
    "too many dots": ("from ... import x\ndef step():\n    return x\n", "...", 3),
}


@pytest.mark.parametrize("name", UNTOLD)
def test_what_reading_cannot_tell_is_named_with_its_place(name: str, tmp_path: Path) -> None:
    """X-176: what cannot be resolved runs every time"""
    source, what, line = UNTOLD[name]
    write(tmp_path, {"pipeline.py": source, "lib.py": "", "pack/__init__.py": "", "pack/a.py": ""})
    code = look(tmp_path)
    assert code.digest is None
    assert [(each.what, each.where) for each in code.unresolved] == [(what, f"pipeline.py:{line}")]


def test_what_cannot_be_told_elsewhere_in_the_file_is_no_obstacle(tmp_path: Path) -> None:
    write(tmp_path, {"pipeline.py": "def step():\n    return 1\ndef other(x):\n    return eval(x)\n"})
    resolved(tmp_path)


def test_names_and_modules_whose_absence_is_provided_for_are_fine(tmp_path: Path) -> None:
    source = """
        from contextlib import suppress
        with suppress(ImportError):
            import surely_not_installed
        def step(x):
            with suppress(ImportError):
                import surely_not_installed as mine
            try:
                get_ipython()
            except NameError:
                return getattr(surely_not_installed, "f", None)
    """
    write(tmp_path, {"pipeline.py": source})
    resolved(tmp_path)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is that of Python 3.12")
def test_type_parameters_are_no_names_of_the_module(tmp_path: Path) -> None:
    source = "class Base: size = 1\ntype Rows[T] = list[T]\ndef step[T: Base](x: T) -> Rows[T]:\n    return [x]\n"
    write(tmp_path, {"pipeline.py": source})
    assert list(look(tmp_path).parts) == ["pipeline:Base", "pipeline:Rows", "pipeline:step"]
    resolved(tmp_path)


def test_names_that_only_look_dangerous_are_fine(tmp_path: Path) -> None:
    source = "def step(frame, eval):\n    return frame.eval('x'), eval(1), globals()['LIMIT']\nLIMIT = 1\n"
    write(tmp_path, {"pipeline.py": source})
    before = resolved(tmp_path)
    edit(tmp_path, "pipeline.py", "LIMIT = 1", "LIMIT = 2")
    assert resolved(tmp_path) != before


def test_source_in_a_contract_counts_whole_but_for_its_layout() -> None:
    """X-176"""
    first = source_digest("def main(x):\n    return eval(x)\n")
    assert first.digest is not None
    assert first.digest == source_digest("# a comment\ndef main(x):\n\n    return eval( x )\n").digest
    assert first.digest != source_digest("def main(x):\n    return eval(x + '1')\n").digest
    assert source_digest("def main(:").digest != source_digest("def main(:\n").digest
