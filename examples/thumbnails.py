"""Thumbnails: a handler that is a plain `def`, for work that keeps a processor busy.

jobq runs it in a thread, as many at once as the queue has slots, so a big picture holds up no job of another kind. A
thread cannot be cancelled: one that is past its time-out ends the worker. So the time-out is generous, and what could
take for ever (a picture of a billion pixels) is refused before.

    jobq migrate --embedded
    python -m examples.thumbnails --embedded
    jobq run examples.thumbnails:queue --embedded --until-empty

It makes `photos/small/1.jpg` of `photos/1.jpg`.
"""

from __future__ import annotations

import os
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from examples.try_out import try_out
from jobq import Job, Permanent, Queue

PHOTOS = Path("photos")
SIZE = (320, 320)  # both sides at most; the shape stays
MAX_PIXELS = 80_000_000

queue = Queue(queues={"images": os.cpu_count() or 1})  # more at once would only wait for each other


@queue.task(
    kind="make_thumbnail",
    queue="images",
    max_attempts=5,
    timeout=120,  # seconds; the largest picture that is let in takes a few
    on_duplicate="harmless: the same thumbnail takes the place of the first; a photo never changes under its id",
)
def make_thumbnail(job: Job, photo_id: int) -> None:
    """Make the thumbnail of one photo."""
    target = PHOTOS / "small" / f"{photo_id}.jpg"
    target.parent.mkdir(parents=True, exist_ok=True)
    # Each attempt writes a file of its own, and renames it when it is whole: nobody is shown half a picture.
    draft = target.with_name(f"{photo_id}.{job.id}-{job.fence}.tmp")
    try:
        with Image.open(PHOTOS / f"{photo_id}.jpg") as photo:  # reads the head only
            if photo.width * photo.height > MAX_PIXELS:
                raise Permanent(f"photo {photo_id} has {photo.width} x {photo.height} pixels: too many")
            photo.draft("RGB", SIZE)  # lets a JPEG be decoded at a fraction of its size
            small = ImageOps.exif_transpose(photo).convert("RGB")  # upright, as the camera was held
    except FileNotFoundError:
        return  # deleted meanwhile, so nobody wants its thumbnail
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise Permanent(f"photo {photo_id} is no picture that can be read") from error
    small.thumbnail(SIZE)
    with open(draft, "wb") as file:
        small.save(file, "JPEG", quality=85)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, target)


async def main() -> None:
    """Enqueue the thumbnail of photo 1."""
    await queue.enqueue(make_thumbnail.bind(photo_id=1))
    print("photo 1 uploaded")


if __name__ == "__main__":
    PHOTOS.mkdir(exist_ok=True)
    Image.radial_gradient("L").resize((1600, 1200)).save(PHOTOS / "1.jpg")
    try_out(queue, main)
