"""Reads picture files with Pillow: JPEG, PNG, TIFF, HEIC, AVIF, WebP; the last two may be animated.

FFmpeg takes what such a file keeps beside its picture for more of it: the other eye of a stereo pair or a
gain map for a second frame, the tiles of a phone's photo for pictures of their own. And it reads nothing of
an animated WebP. Here the picture is the one that the file calls its own, whole and upright.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pi_heif
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from extractors.features import FrameSize
from extractors.media import errors
from extractors.media.containers.container import check_pixels
from extractors.media.errors import MediaWarning, WarningCode
from extractors.media.media_file import MediaFile, open_bytes
from extractors.media.request import DecodeRequest, Limits, Video
from extractors.media.stills.picture_format import detect_picture_format
from extractors.media.stream_parts import Sizes, StreamEnd, StreamPart, StreamStart, split_into_chunks

STILL_SECONDS = 0.04  # as FFmpeg shows single pictures: one frame of a 25 Hz film
NO_DELAY = 0.1  # browsers show a frame without a delay for as long, and FFmpeg does so with GIF
ANIMATED = ("WEBP", "AVIF")
CODECS = {"JPEG": "mjpeg", "HEIF": "hevc", "AVIF": "av1"}
ORIENTATION = 0x0112
NEW_SUBFILE_TYPE, DNG_VERSION = 0x00FE, 0xC612
DEEP = ("I;16", "I;16L", "I;16B", "I;16N")

#: For each EXIF orientation: how to turn or mirror the stored picture, and the degrees of it.
UPRIGHT = {
    2: (Image.Transpose.FLIP_LEFT_RIGHT, 0),
    3: (Image.Transpose.ROTATE_180, 180),
    4: (Image.Transpose.FLIP_TOP_BOTTOM, 180),
    5: (Image.Transpose.TRANSPOSE, 270),
    6: (Image.Transpose.ROTATE_270, 270),
    7: (Image.Transpose.TRANSVERSE, 90),
    8: (Image.Transpose.ROTATE_90, 90),
}

pi_heif.register_heif_opener(thumbnails=False)


def stream_picture(path: MediaFile, request: DecodeRequest, limits: Limits) -> Iterator[StreamPart]:
    """Decodes a picture file into the parts that ``stream_here`` makes of a video.

    Args:
        path: a file that ``is_picture`` accepts.
        request, limits: as of ``stream_here``.

    Raises:
        IncompleteFile, UnsupportedCodec, TooManyPixels, TooManyFrames, TooLong, DecodeTimeout.
    """
    with _open_picture(path, limits) as picture:
        chosen = request.choose(picture.times, picture.duration)
        yield StreamStart(picture.duration, len(picture.times) / picture.duration)
        frames = (picture.sizes(int(position), request.frame_sizes) for position in chosen)
        yield from split_into_chunks(frames, picture.times[chosen], request.chunk_bytes)
        yield StreamEnd(picture.video())


class _PictureFile:
    """Reads one open file: the times of its frames, and their pixels."""

    def __init__(self, image: Image.Image, limits: Limits) -> None:
        deadline = time.monotonic() + limits.seconds
        check_pixels(image.width, image.height, limits.pixels)
        self._image = image
        self._format = "JPEG" if image.format == "MPO" else str(image.format)
        self._warnings = _find_warnings(image)
        count: int = getattr(image, "n_frames", 1) if self._format in ANIMATED else 1
        if count > limits.max_frames:
            raise errors.TooManyFrames(f"The video has more than {limits.max_frames} frames.")
        self.times, self.duration = self._read_times(count, deadline)
        if self.duration > limits.max_duration:
            raise errors.TooLong(
                f"The video lasts {self.duration:.0f} seconds, and {limits.max_duration:.0f} are allowed."
            )
        self._orientation = _read_orientation(image)

    def _read_times(self, count: int, deadline: float) -> tuple[NDArray[np.float64], float]:
        """Reads when each frame is shown, and how long all of them last. Pillow tells only after decoding it.

        Pillow's timestamps are followed where they rise: each is rounded to a millisecond by itself, while
        the sum of rounded stays drifts. Where they do not, a frame has no delay.
        """
        lengths, stamps = np.full(count, STILL_SECONDS), np.zeros(count)
        for position in range(count):
            if time.monotonic() > deadline:
                raise errors.DecodeTimeout("Decoding the video took longer than the time limit.")
            if count > 1:
                self._image.seek(position)
            self._image.load()
            if count > 1:
                lengths[position] = self._image.info.get("duration", 0) / 1000 or NO_DELAY
                stamps[position] = self._image.info.get("timestamp", 0) / 1000
        times = np.cumsum(lengths) - lengths
        if bool((np.diff(stamps) > 0).all()):
            times = stamps - stamps[0]
        return times, float(times[-1] + lengths[-1])

    def pixels(self, position: int, short_side: int | None) -> NDArray[np.uint8]:
        """Decodes one frame to uint8 (H, W, 3), upright."""
        if len(self.times) > 1:
            self._image.seek(position)
        picture = _to_rgb(self._image)
        scale = 1.0 if short_side is None else short_side / min(picture.size)
        if scale < 1:
            width, height = (max(1, round(side * scale)) for side in picture.size)
            picture = picture.resize((width, height), Image.Resampling.BICUBIC)
        if self._orientation in UPRIGHT:
            picture = picture.transpose(UPRIGHT[self._orientation][0])
        return np.asarray(picture, np.uint8)

    def sizes(self, position: int, sizes: tuple[FrameSize, ...]) -> Sizes:
        """Decodes one frame in each of the sizes."""
        sides = dict.fromkeys(size.short_side for size in sizes)
        pixels = {side: self.pixels(position, side)[None] for side in sides}
        return tuple(size.shrink(pixels[size.short_side])[0] for size in sizes)

    def video(self) -> Video:
        """Makes the decode report."""
        width, height = self._image.size
        if self._orientation > 4:
            width, height = height, width
        count, name = len(self.times), self._format.lower()
        return Video(
            container=name,
            codec=CODECS.get(self._format, name),
            duration=self.duration,
            width=width,
            height=height,
            rotation=UPRIGHT.get(self._orientation, (None, 0))[1],
            fps=None,
            fps_average=count / self.duration,
            frames=count,
            frames_expected=None,
            frames_counted=True,
            frames_lost=0,
            times_estimated=False,
            has_audio=False,
            warnings=(WarningCode.STILL_IMAGE.warn(), *self._warnings) if count == 1 else self._warnings,
        )


@contextmanager
def _open_picture(path: MediaFile, limits: Limits) -> Iterator[_PictureFile]:
    """Opens a picture. Raises IncompleteFile, UnsupportedCodec and what the limits are for."""
    picture_format = detect_picture_format(path)
    if picture_format is None:
        raise errors.NotAVideo("The file is not a picture that is read here.")
    try:
        with open_bytes(path) as file, Image.open(file, formats=[picture_format]) as image:
            _refuse_raw(image)
            yield _PictureFile(image, limits)
    except Image.DecompressionBombError as error:
        raise errors.TooManyPixels(f"The picture is larger than {limits.pixels} pixels.") from error
    except errors.MediaError:
        raise
    except (UnidentifiedImageError, EOFError, OSError, ValueError, RuntimeError, SyntaxError) as error:
        raise _explain_unreadable(picture_format, error) from error


def _explain_unreadable(wanted: str, error: Exception) -> errors.MediaError:
    if "nsupported" in str(error):  # libheif's word for codecs that it has no decoder of
        return errors.UnsupportedCodec(f"The {wanted} picture is in a codec that cannot be decoded here.")
    name = {"WEBP": "WebP", "HEIF": "HEIC"}.get(wanted, wanted)
    return errors.IncompleteFile(f"The {name} file is damaged or cut off.")


def _refuse_raw(image: Image.Image) -> None:
    """Refuses a camera's raw file, a TIFF whose first picture is a thumbnail. Raises UnsupportedCodec."""
    tags = getattr(image, "tag_v2", {})
    if DNG_VERSION in tags or tags.get(NEW_SUBFILE_TYPE, 0) & 1:
        raise errors.UnsupportedCodec("The file is a camera's raw picture, which cannot be developed here.")


def _read_orientation(image: Image.Image) -> int:
    """Reads the EXIF orientation, 1 to 8; damaged EXIF is none, since no picture is lost with it."""
    read: Callable[[], Image.Exif] = image.getexif
    try:
        orientation = read().get(ORIENTATION, 1)
    except Exception:  # whatever a hostile tag sets off in Pillow's parser
        return 1
    return orientation if isinstance(orientation, int) and orientation in UPRIGHT else 1


def _to_rgb(image: Image.Image) -> Image.Image:
    """Converts to 8-bit RGB. Pillow itself would clip 16-bit greys to white. Raises UnsupportedCodec."""
    if image.mode in DEEP:
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise errors.UnsupportedCodec("The picture holds measurements (32 bits each), not colours.")
    return image.convert("RGB")


def _find_warnings(image: Image.Image) -> tuple[MediaWarning, ...]:
    """Warns of what is lost when the picture is shown in 8-bit RGB."""
    warnings = []
    depth = image.info.get("bit_depth", 8)
    if image.mode in DEEP or ";16" in str(getattr(image, "tile", "")):
        depth = 16
    if depth > 8:
        warnings.append(WarningCode.HIGH_BIT_DEPTH.warn(medium="picture", depth=depth))
    if image.mode in ("RGBA", "LA", "PA", "RGBa") or "transparency" in image.info:
        warnings.append(WarningCode.ALPHA_DROPPED.warn(medium="picture"))
    return tuple(warnings)
