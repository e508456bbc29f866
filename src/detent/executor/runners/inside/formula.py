"""Draws a LaTeX formula: checked first, then laid out by ziamath, then turned into pixels by resvg.

The libraries are lenient where a document must not be: latex2mathml draws a macro it does not know as its own name, or
silently leaves it out; it puts text into XML unescaped; ziamath draws a character its font does not have as a box. So the
text is checked against latex2mathml's own tables before, the tree it made is checked after, and no XML text is ever
made of the formula: the tree goes over as a tree.
"""

from __future__ import annotations

import math
import re
from typing import Any
from xml.etree import ElementTree as ET

from latex2mathml import commands, converter
from latex2mathml.symbols_parser import SYMBOLS
from latex2mathml.tokenizer import PATTERN
from ziamath.zmath import Math

from detent.executor.runners.inside.answers import Fault, invalid, too_large, write

CHARACTERS_MAX = 10_000
DEPTH_MAX = 40
FONT_PIXELS = 24.0
PNG_ZOOM = 2.0

# Definitions could grow without bound, and the rest would put the author's text into attributes of the picture.
REFUSED = {
    *(commands.NEWCOMMAND, commands.NEWENVIRONMENT, commands.DEF, commands.DECLAREMATHOPERATOR),
    *(commands.HREF, commands.CLASS, commands.STYLE, commands.UNICODE, commands.VERB),
}
BARE = {commands.OPERATORNAME, commands.OPERATORNAMESTAR, commands.OPERATORNAMEWITHLIMITS, commands.BEGIN, commands.END}
"""Commands that latex2mathml knows only together with their argument; alone they are drawn as something else."""
_ENTITY = re.compile(r"&#x([0-9A-Fa-f]{1,6});")
_COLOR = re.compile(r"[A-Za-z]{1,32}|#[0-9A-Fa-f]{3,8}")
_ESCAPE = re.compile(r"\\([%#$&_])")
_NOT_PLAIN = re.compile(r"[{$]|\\(?![%#$&_])")
_UPRIGHT_ARROWS = ("&#x02191;", "&#x02193;")
_ANGLES = ("&#x027E8;", "&#x027E9;")


def main(latex: str, formats: list[str], pixels_max: int) -> dict[str, Any]:
    """Draw a formula into the formats; returns the sizes of what was made, or a fault."""
    try:
        svg, width, height = draw(latex)
        if width * height * PNG_ZOOM**2 > pixels_max:
            too_large("the formula", width * PNG_ZOOM, height * PNG_ZOOM, pixels_max)
        made: dict[str, Any] = {}
        if "png" in formats:
            import resvg_py  # noqa: PLC0415  # a document draws formulas without it

            write("formula.png", resvg_py.svg_to_bytes(svg_string=svg, skip_system_fonts=True, zoom=PNG_ZOOM))
            made["formula.png"] = {}
        if "svg" in formats:
            write("formula.svg", svg.encode())
            made["formula.svg"] = {"width": round(width, 3), "height": round(height, 3)}
    except Fault as fault:
        return fault.answer()
    return {"made": made}


def draw(latex: str) -> tuple[str, float, float]:
    """A formula as SVG with its size in pixels. Raises Fault for what cannot be drawn as written."""
    check(latex)
    try:
        tree = converter.Converter(display="block").convert_to_element(_prepared(latex))
    except RecursionError:
        invalid("the formula is nested too deeply")
    except Exception as exc:  # noqa: BLE001  # a parser that was not written for hostile text raises anything
        invalid(f"the formula is not complete: {_words(type(exc).__name__)}")
    if any(element.text == "&" and element.tag != "mtext" for element in tree.iter()):
        invalid("& stands outside a table", latex, latex.find("&"))
    _repair(tree)
    try:
        picture = Math(tree, size=FONT_PIXELS)
        _check_tree(tree, latex, picture)
        width, height = picture.getsize()
        svg = picture.svg()
    except RecursionError:
        invalid("the formula is nested too deeply")
    except Fault:
        raise
    except Exception as exc:  # noqa: BLE001  # the same
        invalid(f"the formula cannot be laid out: {_words(type(exc).__name__)}")
    if not (math.isfinite(width) and math.isfinite(height)):
        invalid("the formula has no finite size")
    return svg, width + 2 * picture.margin, height + 2 * picture.margin


def check(latex: str) -> None:
    """Refuse what latex2mathml would draw as something other than what was written, at its place."""
    if len(latex) > CHARACTERS_MAX:
        invalid(f"the formula has {len(latex)} characters; {CHARACTERS_MAX} are allowed")
    known = known_macros()
    depth = 0
    for found in PATTERN.finditer(latex):
        kind, text = found.lastgroup, found.group()
        name = found["command"] or found["math_font"] or found["text_cmd"] or found["frac_cmd"]
        if found["verb"] is not None:
            name = commands.VERB
        if found["begin_end"] is not None:
            _check_environment(text, latex, found.start())
            depth += 1 if text.startswith(commands.BEGIN) else -1
        elif name is not None:
            if name in REFUSED:
                invalid(f"{name} is not available in formulas here", latex, found.start())
            if name in BARE:
                invalid(f"{name} takes a name of letters in braces", latex, found.start())
            if name not in known:
                invalid(f"the macro {name} is not known", latex, found.start())
            depth += {commands.LEFT: 1, commands.RIGHT: -1}.get(name, 0)
            if _NOT_PLAIN.search(found["text_content"] or ""):
                invalid(f"{name} takes plain text, without macros and braces", latex, found.start())
        elif kind == "char":
            if text == "\\":
                invalid(f"the macro {latex[found.start() : found.start() + 2]} is not known", latex, found.start())
            depth += {"{": 1, "}": -1}.get(text, 0)
        if depth < 0:
            invalid("something is closed that was not opened", latex, found.start())
        if depth > DEPTH_MAX:
            invalid(f"the formula is nested more than {DEPTH_MAX} levels deep", latex, found.start())
    if depth:
        invalid("something is opened that is not closed", latex, len(latex))


def known_macros() -> frozenset[str]:
    """Every macro that latex2mathml has a meaning for, by its own tables."""
    found: set[str] = set()
    for value in vars(commands).values():
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, tuple | dict):
            found.update(item for item in value if isinstance(item, str))
    found |= {*SYMBOLS, *converter.OPERATORS, *converter.MOVABLE_LIMIT_TEXTS, r"\of"}
    return frozenset(name for name in found if name.startswith("\\")) - BARE


def _check_environment(text: str, latex: str, place: int) -> None:
    name = text.partition("{")[2].rstrip("}")
    if f"\\{name}" not in commands.MATRICES and name != "aligned":
        invalid(f"the environment {name} is not known", latex, place)


def _prepared(latex: str) -> str:
    """What ziamath itself does to a formula first, as far as it is right for every formula."""
    latex = re.sub(r"\\mathrm{", r"\\mathrm {", PATTERN.sub(_without_escapes, latex))
    return latex.replace("||", "‖").replace("{aligned}", "{align*}")


def _without_escapes(found: re.Match[str]) -> str:
    """Text with its escaped characters as they are meant; latex2mathml would draw the backslashes."""
    if found["text_cmd"] is None:
        return found.group()
    return found["text_cmd"] + "{" + _ESCAPE.sub(r"\1", found["text_content"]) + "}"


def _repair(tree: ET.Element) -> None:
    """What ziamath does to the XML text of a formula, done to the tree, and text made of what stands for it."""
    tree.attrib.pop("xmlns", None)  # An attribute as latex2mathml sets it; ziamath takes it for a part of every name.
    for element in tree.iter():
        text = element.text or ""
        if text.startswith(_UPRIGHT_ARROWS) or (
            element.tag == "mi" and not element.attrib and text.startswith(_ANGLES)
        ):
            element.set("stretchy", "false")
        if element.tag == "mo" and text.startswith("&#x0005E;"):
            if element.attrib == {"stretchy": "false"}:
                text = "\u02c6"
            elif not element.attrib:
                text = "\u0302"
        if element.tag == "mo" and not element.attrib and text.startswith("&#x0007E;"):
            text = "\u0303"
        spacing = element.get("columnspacing")
        if spacing is not None:
            element.set("columnspacing", spacing.replace("0em 2em", "0em 0.3em"))
        element.text = _ENTITY.sub(_character, text) or None


def _character(found: re.Match[str]) -> str:
    number = int(found[1], 16)
    return chr(number) if 0x20 <= number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else "\ufffd"


def _check_tree(tree: ET.Element, latex: str, picture: Math) -> None:
    for element in tree.iter():
        text = element.text or ""
        if text.startswith("\\") and len(text) > 1 and element.tag != "mtext":
            invalid(f"the macro {text} cannot be used like this", latex, max(0, latex.find(text)))
        for character in text:
            if not character.isspace() and not picture.font.glyphindex(character):
                shown = f"{character} (U+{ord(character):04X})"
                invalid(f"there is no picture of the character {shown}", latex, max(0, latex.find(character)))
        for name in ("mathcolor", "mathbackground"):
            if name in element.attrib and not _COLOR.fullmatch(element.attrib[name]):
                invalid("a colour is a name or # and hex digits", latex, max(0, latex.find(element.attrib[name])))


def _words(name: str) -> str:
    """The name of an exception as words: MissingEndError, missing end."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name.removesuffix("Error")).lower()
