"""Picture files with something beside the picture: orientation, profiles, other pictures, films."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image, ImageCms

from tests.media import quarters

ORIENTATION = 0x0112
CASES = Path(__file__).parent / "cases"
#: Corners (top left, top right, bottom left, bottom right) of the upright picture, by EXIF orientation.
UPRIGHT_CORNERS = {
    1: ["red", "green", "blue", "grey"],
    2: ["green", "red", "grey", "blue"],
    3: ["grey", "blue", "green", "red"],
    4: ["blue", "grey", "red", "green"],
    5: ["red", "blue", "green", "grey"],
    6: ["blue", "red", "grey", "green"],
    7: ["grey", "green", "blue", "red"],
    8: ["green", "grey", "red", "blue"],
}


def picture(index: int = 10, width: int = 64, height: int = 48) -> Image.Image:
    """Red, green, blue and grey quarters."""
    return Image.fromarray(quarters(index, width, height))


def write_turned(path: Path, orientation: int) -> Path:
    """A picture by the path's suffix that says it is to be turned."""
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    picture().save(path, exif=exif.tobytes() if path.suffix != ".tiff" else exif, quality=95)
    return path


def jpeg(index: int = 10, orientation: int | None = None) -> bytes:
    """One JPEG, with EXIF where it has an orientation."""
    buffer, exif = io.BytesIO(), Image.Exif()
    if orientation is not None:
        exif[ORIENTATION] = orientation
    picture(index).save(buffer, "JPEG", quality=95, **({"exif": exif} if orientation else {}))
    return buffer.getvalue()


def colour_profile() -> bytes:
    """An ICC profile, whose name becomes a tag of the side data."""
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
