"""thumbnail_generate: small pictures of pictures."""

from __future__ import annotations

import io
from typing import Any

import pytest

from detent.jobs import JobStatus
from tests.executor.runners.rig import Backend, error_of, thumbnail
from tests.jobs.envelopes import THUMBNAIL

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("resvg_py")


def picture(size: tuple[int, int], form: str, mode: str = "RGB", **options: Any) -> bytes:
    """A gradient, so that scaling has something to do."""
    image = Image.linear_gradient("L").resize(size).convert(mode)
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


@pytest.mark.parametrize(
    ("form", "mode"), [("PNG", "RGBA"), ("JPEG", "RGB"), ("WEBP", "RGB"), ("GIF", "P"), ("BMP", "L")]
)
def test_a_picture_is_made_to_fit_the_box(here: Backend, form: str, mode: str) -> None:
    """JOB-010, JOB-047, JOB-050"""
    digest = here.put(picture((900, 300), form, mode))
    result = here.run(thumbnail(digest, "png", "jpeg", "webp", width=320, height=180))
    assert result.status is JobStatus.SUCCEEDED, result.error
    assert [(one.kind, one.format, one.content_type) for one in result.artifacts] == [
        ("thumbnail", "jpeg", "image/jpeg"),
        ("thumbnail", "png", "image/png"),
        ("thumbnail", "webp", "image/webp"),
    ]
    for name, data in here.bytes_of(result).items():
        with Image.open(io.BytesIO(data)) as found:
            assert found.size == (320, 107), name
    assert all((one.metadata["width"], one.metadata["height"]) == (320, 107) for one in result.artifacts)


def test_a_small_picture_is_not_blown_up(here: Backend) -> None:
    """JOB-047"""
    result = here.run(thumbnail(here.put(picture((20, 10), "PNG"))))
    assert (result.artifacts[0].metadata["width"], result.artifacts[0].metadata["height"]) == (20, 10)


def test_an_svg_is_drawn_into_the_box(here: Backend) -> None:
    """JOB-010"""
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><rect width="40" height="20" fill="red"/></svg>'
    result = here.run(thumbnail(here.put(svg), width=200, height=200))
    assert result.status is JobStatus.SUCCEEDED, result.error
    with Image.open(io.BytesIO(here.bytes_of(result)["thumbnail.png"])) as found:
        assert found.size == (200, 100)
        assert found.convert("RGB").getpixel((100, 50)) == (255, 0, 0)


def test_nothing_but_pixels_is_carried_over_and_they_stand_upright(here: Backend) -> None:
    """JOB-010"""
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    exif[0x010E] = "taken at home"
    source = picture((400, 200), "JPEG", exif=exif, comment=b"secret", icc_profile=b"profile")
    found = here.bytes_of(here.run(thumbnail(here.put(source), "png", "jpeg", "webp", width=100, height=100)))
    for data in found.values():
        with Image.open(io.BytesIO(data)) as small:
            assert small.size == (50, 100)
            assert not small.getexif()
            assert {"exif", "icc_profile", "comment"} & set(small.info) == set()
        assert b"taken at home" not in data
        assert b"secret" not in data


def test_transparency_is_kept_where_there_is_some_and_white_elsewhere(here: Backend) -> None:
    """JOB-010"""
    out = io.BytesIO()
    Image.new("RGBA", (40, 40), (255, 0, 0, 0)).save(out, "PNG")
    found = here.bytes_of(here.run(thumbnail(here.put(out.getvalue()), "png", "jpeg")))
    with Image.open(io.BytesIO(found["thumbnail.png"])) as small:
        assert small.mode == "RGBA"
    with Image.open(io.BytesIO(found["thumbnail.jpeg"])) as small:
        assert small.getpixel((20, 20)) == (255, 255, 255)
    opaque = here.bytes_of(here.run(thumbnail(here.put(picture((40, 40), "PNG", "RGBA")))))
    with Image.open(io.BytesIO(opaque["thumbnail.png"])) as small:
        assert small.mode == "RGB"


def test_equal_pictures_give_equal_bytes(here: Backend) -> None:
    """JOB-010"""
    digest = here.put(picture((700, 500), "JPEG"))
    first, second = (here.run(thumbnail(digest, "png", "jpeg", "webp")) for _ in range(2))
    assert [one.digest for one in first.artifacts] == [one.digest for one in second.artifacts]


def test_a_source_that_is_missing_or_not_named_by_digest_is_refused(here: Backend) -> None:
    """JOB-060, JOB-071"""
    missing = here.run(thumbnail("sha256:" + "0" * 64))
    assert error_of(missing) == ("FAILED", "DEPENDENCY_ERROR", "DEPENDENCY_MISSING")
    for draft in (THUMBNAIL, thumbnail("/etc/passwd"), thumbnail("https://example.org/a.png")):
        result = here.run(draft)
        assert error_of(result) == ("FAILED", "VALIDATION_ERROR", "VALIDATION_ERROR")
        assert result.error is not None
        assert result.error.message.startswith("payload.inputs.content_digest: ")


def test_what_is_no_picture_is_not_supported_and_a_damaged_one_is_invalid(here: Backend) -> None:
    """JOB-060"""
    for data in (b"", b"hello", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"PK\x03\x04"):
        assert error_of(here.run(thumbnail(here.put(data)))) == ("FAILED", "VALIDATION_ERROR", "VALIDATION_ERROR")
    broken = picture((300, 300), "PNG")[:200]
    assert error_of(here.run(thumbnail(here.put(broken)))) == ("FAILED", "USER_CODE_ERROR", "INPUT_INVALID")
