"""Makes a small picture of a picture with Pillow, or of an SVG with resvg.

A picture's header is believed only to refuse it: nothing is decoded before its size is known to fit. Nothing of the file
but its pixels is carried over, so neither a place in EXIF nor a comment nor a colour profile reaches the thumbnail.
"""

from __future__ import annotations

import io
import os
import warnings
from typing import Any

import resvg_py
from PIL import Image, ImageOps, UnidentifiedImageError

from detent.executor.runners.inside.answers import UNSUPPORTED, Fault, invalid, too_large, write

DECODERS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""What is read. Not those that call other programs or hold programs (EPS), nor the many that are never used."""
SVG_BYTES_MAX = 4 << 20
EMPTY = "empty"
"""Where an SVG would find its neighbours."""
OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"format": "PNG", "optimize": False, "compress_level": 6},
    "jpeg": {"format": "JPEG", "quality": 85, "optimize": False, "progressive": False, "subsampling": 2},
    "webp": {"format": "WEBP", "quality": 85, "method": 4, "lossless": False},
}


def main(width: int, height: int, formats: list[str], pixels_max: int, name: str) -> dict[str, Any]:
    """Make thumbnails of the input with this name that fit into a box; returns their sizes, or a fault."""
    warnings.simplefilter("ignore")
    Image.MAX_IMAGE_PIXELS = pixels_max
    try:
        picture = _small(os.path.join(os.environ["DETENT_INPUTS"], name), (width, height), pixels_max)  # noqa: PTH118
        made = {}
        for kind in formats:
            out = io.BytesIO()
            _bare(picture, alpha=kind != "jpeg").save(out, **OPTIONS[kind])
            write(f"thumbnail.{kind}", out.getvalue())
            made[f"thumbnail.{kind}"] = {"width": picture.width, "height": picture.height}
    except Fault as fault:
        return fault.answer()
    return {"made": made}


def _small(path: str, box: tuple[int, int], pixels_max: int) -> Image.Image:
    with open(path, "rb") as file:  # noqa: PTH123
        head = file.read(512)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:4] in {b"<svg", b"<?xm", b"<!--", b"<!DO"}:
        return _of_svg(path, box, pixels_max)
    try:
        with Image.open(path, formats=DECODERS) as picture:
            if picture.width * picture.height > pixels_max:
                too_large("the picture", picture.width, picture.height, pixels_max)
            picture.draft("RGB", box)
            upright = ImageOps.exif_transpose(picture).convert("RGBA")
    except Image.DecompressionBombError as exc:
        raise Fault("too large", str(exc)) from None
    except UnidentifiedImageError:
        raise Fault(UNSUPPORTED, f"the picture is none of SVG, {', '.join(DECODERS)}") from None
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, KeyError, OverflowError) as exc:
        invalid(f"the picture is damaged: {type(exc).__name__}")
    upright.thumbnail(box, Image.Resampling.LANCZOS)
    return upright


def _of_svg(path: str, box: tuple[int, int], pixels_max: int) -> Image.Image:
    """The first picture of an SVG, drawn to fit. There is no font in the jail, so text in it stays out."""
    if box[0] * box[1] > pixels_max:
        too_large("the thumbnail", *box, pixels_max)
    with open(path, "rb") as file:  # noqa: PTH123
        data = file.read(SVG_BYTES_MAX + 1)
    if len(data) > SVG_BYTES_MAX:
        raise Fault("too large", f"the SVG has more than {SVG_BYTES_MAX} bytes")
    try:
        os.makedirs(EMPTY)  # noqa: PTH103
        drawn = resvg_py.svg_to_bytes(
            svg_string=data.decode(), skip_system_fonts=True, width=box[0], height=box[1], resources_dir=EMPTY
        )
        with Image.open(io.BytesIO(drawn), formats=("PNG",)) as picture:
            return picture.convert("RGBA")
    except (ValueError, OSError) as exc:
        invalid(f"the SVG cannot be drawn: {type(exc).__name__}")


def _bare(picture: Image.Image, *, alpha: bool) -> Image.Image:
    """The pixels alone; over white where the format has no transparency or the picture uses none."""
    opaque = picture.getchannel("A").getextrema() == (255, 255)
    if alpha and not opaque:
        kept = picture
    else:
        kept = Image.new("RGBA", picture.size, "white")
        kept.alpha_composite(picture)
        kept = kept.convert("RGB")
    bare = Image.new(kept.mode, kept.size)
    bare.paste(kept)
    return bare
