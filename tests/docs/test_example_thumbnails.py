"""The thumbnails of examples/thumbnails.py: real pictures, upright, whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from examples import thumbnails
from jobq.core.states import State
from tests.docs.conftest import PROCESSES, Told, Work
from tests.worker.observe import Jobs

ORIENTATION = 0x0112
"""The EXIF tag that says how the camera was held; 6: turned by a quarter."""


@pytest.fixture
def photos(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory of photos."""
    monkeypatch.chdir(tmp_path)
    thumbnails.queue.use_dsn(database)
    thumbnails.PHOTOS.mkdir()
    return thumbnails.PHOTOS


async def make(photo_id: int, work: Work) -> Path:
    """Let a worker make a thumbnail, and return where it is to be."""
    await thumbnails.queue.enqueue(thumbnails.make_thumbnail.bind(photo_id=photo_id))
    await work(thumbnails.queue)
    return thumbnails.PHOTOS / "small" / f"{photo_id}.jpg"


@PROCESSES
async def test_its_head_tells_how_to_get_a_thumbnail(told: Told, tmp_path: Path) -> None:
    """Its commands leave one small JPEG in the shape of the photo."""
    for command in told.commands("thumbnails"):
        await told.run(command)

    [file] = (tmp_path / "photos" / "small").iterdir()
    assert file.name == "1.jpg"
    with Image.open(file) as small:
        small.load()
        assert (small.format, small.size) == ("JPEG", (320, 240))


async def test_a_photo_is_turned_upright(photos: Path, work: Work) -> None:
    """Its EXIF data do not survive, so the pixels have to be turned."""
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    Image.new("RGB", (1600, 1200)).save(photos / "7.jpg", exif=exif)

    made = await make(7, work)

    with Image.open(made) as small:
        assert small.size == (240, 320)
        assert ORIENTATION not in small.getexif()


async def test_what_is_no_picture_or_too_large_is_a_dead_letter(
    photos: Path, jobs: Jobs, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry would not help."""
    (photos / "1.jpg").write_text("no picture")
    Image.new("L", (100, 100)).save(photos / "2.jpg")
    monkeypatch.setattr(thumbnails, "MAX_PIXELS", 9_999)

    made = [await make(1, work), await make(2, work)]

    assert await jobs.count() == {State.DEAD: 2}
    assert not any(path.exists() for path in made)


async def test_a_photo_that_was_deleted_needs_no_thumbnail(photos: Path, jobs: Jobs, work: Work) -> None:
    """The job is done, and nothing was made."""
    made = await make(1, work)

    assert await jobs.count() == {State.DONE: 1}
    assert not made.exists()


async def test_a_thumbnail_that_was_not_written_to_its_end_is_not_shown(
    photos: Path, jobs: Jobs, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that fails while it writes leaves nothing under the thumbnail's name."""

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    Image.new("L", (100, 100)).save(photos / "1.jpg")
    monkeypatch.setattr(os, "fsync", no_space)

    made = await make(1, work)

    assert not made.exists()
    assert await jobs.count() == {State.WAITING: 1}
