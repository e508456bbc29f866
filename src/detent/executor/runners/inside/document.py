"""Typesets a document with typst: PDF, HTML, and a bundle of both with what they were made of.

A document of blocks reaches typst as data, which a template of ours lays out: no text of the author's is ever read as
markup. A document that is typst source itself is read as what it is, with the jail as its only companion: the root is an
empty directory but for the declared pictures, there is no network for packages, and no fonts but typst's own.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import zipfile
from typing import Any

import typst

from detent.executor.runners.inside.answers import INVALID, TEXT_MAX, Fault, write

WORK = "work"
ARCHIVE_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time an archive can hold; the same for every member of every bundle."""

TEMPLATE = """
#set document(date: none, title: data.title)
#let block-of(b) = {
  if b.type == "heading" { heading(level: b.level, b.text) }
  else if b.type == "text" { par(b.text) }
  else if b.type == "quote" { quote(block: true, b.text) }
  else if b.type == "code" { raw(b.source, block: true, lang: if b.language == "" { none } else { b.language }) }
  else if b.type == "equation" { let it = image(b.picture, alt: b.latex); if paged { align(center, it) } else { it } }
  else if b.type == "list" { if b.ordered { enum(..b.items) } else { list(..b.items) } }
  else if b.type == "table" { table(columns: b.columns, ..b.rows.flatten()) }
  else if b.type == "image" { image(b.picture, alt: b.alt) }
}
#if data.title != "" { title() }
#for (number, slide) in data.slides.enumerate() {
  if paged and slides and number > 0 { pagebreak() }
  if slide.title != "" { heading(level: 1, slide.title) }
  for b in slide.blocks { block-of(b) }
  if slide.notes != "" { block(width: 100%, inset: 8pt, stroke: 0.5pt, [*Notes* #par(slide.notes)]) }
}
"""
PAGES = {
    "slide": '#set page(width: 25.4cm, height: 14.29cm, margin: 1.5cm)\n#set text(size: 18pt, lang: "en")\n',
    "document": '#set page(paper: "a4")\n#set text(size: 11pt, lang: "en")\n',
}
_PLACE = re.compile(r"┌─ [^:\n]*:(\d{1,6}):(\d{1,6})")


def main(
    document: dict[str, Any] | None, source: str | None, view_mode: str, formats: list[str], pictures: dict[str, str]
) -> dict[str, Any]:
    """Typeset a document of blocks, or typst source, into the formats; returns what was made, or a fault."""
    work = os.path.abspath(WORK)  # noqa: PTH100
    os.makedirs(os.path.join(work, "pictures"))  # noqa: PTH103, PTH118
    members: dict[str, bytes] = {}
    try:
        for digest, name in pictures.items():
            with open(os.path.join(os.environ["DETENT_INPUTS"], name), "rb") as file:  # noqa: PTH118, PTH123
                members[_picture(digest)] = file.read()
        if document is not None:
            members["document.json"] = _text(document)
            _set(document, members)
        for name, data in members.items():
            with open(os.path.join(work, name), "xb") as file:  # noqa: PTH118, PTH123
                file.write(data)
        if source is not None:
            members["document.typ"] = source.encode()
        made: dict[str, dict[str, Any]] = {}
        for kind in ("pdf", "html"):
            if {kind, "bundle"} & set(formats):
                members[f"document.{kind}"] = _compile(source, view_mode, kind, work)
            if kind in formats:
                write(f"document.{kind}", members[f"document.{kind}"])
                made[f"document.{kind}"] = {"view_mode": view_mode}
        if "bundle" in formats:
            write("document.zip", _bundle(members))
            made["document.zip"] = {"view_mode": view_mode, "members": len(members) + 1}
    except Fault as fault:
        return fault.answer()
    return {"made": made}


def _set(document: dict[str, Any], members: dict[str, bytes]) -> None:
    """Give every picture and formula of a document the name of its file."""
    formulas: dict[str, str] = {}
    for slide in document["slides"]:
        for block in slide["blocks"]:
            if block["type"] == "image":
                block["picture"] = _picture(block["digest"])
            elif block["type"] == "equation":
                from detent.executor.runners.inside.formula import draw  # noqa: PLC0415  # slow, and most have none

                latex = block["latex"]
                if latex not in formulas:
                    formulas[latex] = f"pictures/formula-{len(formulas) + 1}.svg"
                    members[formulas[latex]] = draw(latex)[0].encode()
                block["picture"] = formulas[latex]
    members["laid-out.json"] = _text(document)


def _picture(digest: str) -> str:
    return f"pictures/{digest.replace(':', '-')}"


def _text(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, indent=1).encode()


def _compile(source: str | None, view_mode: str, kind: str, work: str) -> bytes:
    if source is None:
        paged = kind == "pdf"
        head = f'#let data = json("/laid-out.json")\n#let paged = {str(paged).lower()}\n'
        head += f"#let slides = {str(view_mode == 'slide').lower()}\n{PAGES[view_mode] if paged else ''}"
        text = head + TEMPLATE
    else:
        text = source
    try:
        made = typst.compile(
            text.encode(),
            root=work,
            ignore_system_fonts=True,
            format=kind,  # type: ignore[call-overload]  # one of its literals
            timestamp=0,
            package_path=os.path.join(work, "none"),  # noqa: PTH118
            package_cache_path=os.path.join(work, "none"),  # noqa: PTH118
        )
    except typst.TypstError as exc:
        raise _fault(exc, in_source=source is not None) from None
    assert isinstance(made, bytes)
    return made


def _fault(exc: typst.TypstError, *, in_source: bool) -> Fault:
    found = _PLACE.search(exc.diagnostic) if in_source else None
    message = f"the document cannot be typeset: {exc.message[: TEXT_MAX // 2]}"
    # Typst counts lines from one and columns from nought.
    return Fault(INVALID, message, int(found[1]), int(found[2]) + 1) if found else Fault(INVALID, message)


def _bundle(members: dict[str, bytes]) -> bytes:
    """An archive whose bytes depend on its members alone: sorted, stored as they are, without times or owners."""
    members = {name: data for name, data in members.items() if name != "laid-out.json"}
    members["manifest.json"] = _text(
        {name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in members.items()}
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            entry = zipfile.ZipInfo(name, ARCHIVE_TIME)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, members[name])
    return out.getvalue()
