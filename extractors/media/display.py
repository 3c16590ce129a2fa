"""Turns decoded frames into pixels as a viewer sees them: upright, at display aspect, 8-bit RGB.

How a frame is to be turned and cropped stands in side data, and no kind of that may end a decode. PyAV's
``frame.side_data`` makes objects of all side data at once: it raises where a kind is newer than its own
table, and where a kind has tags (an ICC profile) it frees them twice, which kills the process. So everything
but the display matrix is deleted by a filter first. PyAV shows nothing of a track's own side data: FFmpeg
writes it into the header of an mp4 in memory, and it is read from there.
"""

import io
import struct
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import av
import numpy as np
from av.filter import Graph
from av.filter.context import FilterContext
from av.video.frame import VideoFrame
from av.video.reformatter import Colorspace, ColorTrc, Interpolation, VideoReformatter
from av.video.stream import VideoStream
from numpy.typing import NDArray

from extractors.media.errors import MediaWarning, WarningCode

# A pixel wider than this is a damaged header, not a format in use (the widest is 2.4).
WIDEST_PIXEL = 8
# As players take it: 720p and larger are HD, the largest of SD is PAL.
HD_WIDTH, SD_HEIGHT = 1280, 576
UNTAGGED = 2  # AVCOL_SPC_UNSPECIFIED
HDR_CURVES = {int(ColorTrc.SMPTE2084): "PQ", int(ColorTrc.ARIB_STD_B67): "HLG"}
# Bicubic widens its filter when it shrinks; full chroma keeps odd widths clean at the right edge.
SCALER = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT

DISPLAY_MATRIX = 6  # AV_FRAME_DATA_DISPLAYMATRIX; FFmpeg has about forty kinds, and more each year
KINDS = 128
CROP_BOX, CROP_NUMBERS = b"\0\0\0\x28clap", struct.Struct(">IIIIiIiI")
#: Boxes an mp4's track keeps its Dolby Vision record in, by profile (ETSI TS 103 572 and Dolby's own).
DOLBY_VISION_BOXES = (b"\0\0\0\x20dvcC", b"\0\0\0\x20dvvC", b"\0\0\0\x20dvwC")


@dataclass(frozen=True)
class Crop:
    """Names the part of a stored frame that is meant to be seen, in its pixels."""

    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True)
class Display:
    """Size, turn and crop with which the frames of one video are shown."""

    width: int  #: pixels of a displayed frame's row, before it is made smaller
    height: int  #: rows of the same frame
    stored_width: int  #: pixels of a row to scale to, before the turn
    stored_height: int  #: rows to scale to, before the turn
    quarter_turns: int  #: counter-clockwise, of the scaled frame
    mirrored: bool  #: whether left and right are exchanged after the turn
    crop: Crop | None = None  #: the part of a stored frame that is shown, None for all of it

    @property
    def rotation(self) -> int:
        """Degrees counter-clockwise."""
        return 90 * self.quarter_turns

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the frames handed out."""
        if self.quarter_turns % 2:
            return self.stored_width, self.stored_height, 3
        return self.stored_height, self.stored_width, 3

    def at(self, short_side: int | None) -> Self:
        """Makes the display of the same frames handed out smaller; None leaves them as stored."""
        width, height = _fit_short_side(self.stored_width, self.stored_height, short_side)
        return replace(self, stored_width=width, stored_height=height)


def _fit_short_side(width: int, height: int, short_side: int | None) -> tuple[int, int]:
    scale = 1.0 if short_side is None else min(1.0, short_side / min(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def plan_display(frame: VideoFrame, sample_aspect: Fraction | None, crop: Crop | None = None) -> Display:
    """Works out how the frames of a film are shown.

    Args:
        frame: the first of the film, whose display matrix turns all of them.
        sample_aspect: width of a stored pixel over its height, None where the stream names none.
        crop: the part of a stored frame that is shown, None for all of it.

    Returns:
        The display of frames as stored; ``Display.at`` makes it smaller.
    """
    aspect = sample_aspect or Fraction(1)
    if not Fraction(1, WIDEST_PIXEL) <= aspect <= WIDEST_PIXEL:
        aspect = Fraction(1)
    shown_part = crop or frame
    width, height = shown_part.width, shown_part.height
    if aspect > 1:
        width = round(width * aspect)
    else:
        height = round(height / aspect)
    turns, mirrored = _read_orientation(frame)
    shown = (height, width) if turns % 2 else (width, height)
    return Display(*shown, *_fit_short_side(width, height, None), turns, mirrored, crop)


def _read_orientation(frame: VideoFrame) -> tuple[int, bool]:
    """Reads quarter turns counter-clockwise, and whether a left-right mirroring follows.

    The display matrix sends a pixel to x' = a x + c y, y' = b x + d y with y downwards; it is stored as
    nine 32-bit numbers a b u c d v x y w, and a negative determinant mirrors (libavutil/display.h).
    """
    matrix = read_display_matrix(frame)
    if matrix is None:
        return 0, False
    a, b, _, c, d = matrix[:5]
    mirrored = a * d - b * c < 0
    turns = round(np.degrees(np.arctan2(-b, -a if mirrored else a)) / 90) % 4
    return turns, mirrored


class FrameConverter:
    """Turns frames into pixels; keeps one scaler for all frames of a video."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._scaler = VideoReformatter()
        self._cropper = None if display.crop is None else _Cropper(display.crop)

    def pixels(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """Converts to uint8 ``display.shape``, RGB. Alpha is dropped, more than 8 bits are rounded."""
        display = self._display
        if self._cropper is not None:
            frame = self._cropper.crop_frame(frame)
        scaled = self._scaler.reformat(
            frame,
            display.stored_width,
            display.stored_height,
            choose_rgb_layout(frame),
            src_colorspace=Colorspace.ITU709 if is_untagged_hd(frame) else None,
            interpolation=SCALER,
            threads=1,
        )
        picture = np.rot90(scaled.to_ndarray(), display.quarter_turns)
        return np.ascontiguousarray(picture[:, ::-1] if display.mirrored else picture, dtype=np.uint8)


def choose_rgb_layout(frame: VideoFrame) -> str:
    """Chooses the layout of RGB that swscale makes of a frame quickest, as FFmpeg names it.

    Its last step is vectorized to planes and not to interleaved pixels: the same bytes cost less than half.
    """
    return "gbrp" if frame.format.is_planar and not frame.format.is_rgb else "rgb24"


class _Cropper:
    """Cuts one part out of frames; keeps one filter for all frames of a size and format."""

    def __init__(self, crop: Crop) -> None:
        self._crop = crop
        self._graph = Graph()
        self._fits: tuple[int, int, str] | None = None

    def crop_frame(self, frame: VideoFrame) -> VideoFrame:
        """Crops a frame; one that is too small stays as it is."""
        crop = self._crop
        if frame.width < crop.left + crop.width or frame.height < crop.top + crop.height:
            return frame
        fits = (frame.width, frame.height, frame.format.name)
        if fits != self._fits:
            self._graph, self._fits = self._build_filter(frame), fits
        self._graph.push(frame)
        return self._graph.vpull()

    def _build_filter(self, frame: VideoFrame) -> Graph:
        graph, crop = Graph(), self._crop
        part = f"w={crop.width}:h={crop.height}:x={crop.left}:y={crop.top}:exact=1"
        nodes = _add_buffer(graph, frame), graph.add("crop", part), graph.add("buffersink")
        graph.link_nodes(*nodes).configure()
        return graph


def _add_buffer(graph: Graph, frame: VideoFrame) -> FilterContext:
    """Adds what a graph takes such frames by."""
    rate = frame.time_base or Fraction(1, 25)
    return graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=rate)


def is_untagged_hd(frame: VideoFrame) -> bool:
    """Returns whether the frame's colour space is not stated and its size means BT.709."""
    has_chroma = not frame.format.is_rgb and len(frame.format.components) > 2
    is_hd = frame.width >= HD_WIDTH or frame.height > SD_HEIGHT
    return has_chroma and is_hd and int(frame.colorspace) == UNTAGGED


def find_picture_warnings(frame: VideoFrame) -> list[MediaWarning]:
    """Warns of all that is lost when this frame is shown in 8-bit RGB, whole and still."""
    warnings = []
    curve = HDR_CURVES.get(int(frame.color_trc))
    depth = max((component.bits for component in frame.format.components), default=8)
    if frame.interlaced_frame:
        warnings.append(WarningCode.INTERLACED.warn())
    if curve:
        warnings.append(WarningCode.HDR.warn(curve=curve))
    if depth > 8:
        warnings.append(WarningCode.HIGH_BIT_DEPTH.warn(medium="video", depth=depth))
    # a gif decodes to bgra whether it is transparent or not
    if frame.format.name != "bgra" and any(component.is_alpha for component in frame.format.components):
        warnings.append(WarningCode.ALPHA_DROPPED.warn(medium="video"))
    return warnings


@dataclass(frozen=True)
class TrackFacts:
    """Facts about a track's frames that stand in its header."""

    crop: Crop | None = None  #: the part to be seen, None where that is all
    dolby_vision: int | None = None  #: the profile, None where it is none


def read_display_matrix(frame: VideoFrame) -> tuple[int, ...] | None:
    """Reads the nine numbers of the frame's display matrix (libavutil/display.h), None where it has none."""
    graph = Graph()
    filters = [
        _add_buffer(graph, frame),
        graph.add("sidedata", f"mode=select:type={DISPLAY_MATRIX}"),  # drops frames without one
        *(graph.add("sidedata", f"mode=delete:type={k}") for k in range(KINDS) if k != DISPLAY_MATRIX),
        graph.add("buffersink"),
    ]
    try:
        graph.link_nodes(*filters).configure()
        graph.push(frame)
        graph.push(None)
        kept: Any = graph.pull()
        return struct.unpack("<9i", bytes(kept.side_data["DISPLAYMATRIX"])[:36])
    except (av.error.FFmpegError, LookupError, ValueError, struct.error):
        return None


def read_track_facts(stream: VideoStream) -> TrackFacts:
    """Reads crop and Dolby Vision profile of a track; nothing where an mp4 cannot hold its codec."""
    context = stream.codec_context
    for container_format in ("mp4", "mov"):
        header = _write_header(stream, container_format)
        if header:
            return TrackFacts(_parse_crop(header, context.width, context.height), _parse_dolby_vision(header))
    return TrackFacts()


def _write_header(stream: VideoStream, container_format: str) -> bytes:
    """Writes the header that FFmpeg makes for a file with this one track."""
    buffer = io.BytesIO()
    options = {"movflags": "frag_keyframe+empty_moov", "strict": "-2"}
    try:
        with av.open(buffer, "w", format=container_format, options=options) as out:
            out.add_stream_from_template(stream)
            out.start_encoding()
    except (av.error.FFmpegError, ValueError, RuntimeError):
        return b""
    return buffer.getvalue()


def _parse_crop(header: bytes, width: int, height: int) -> Crop | None:
    """Parses the clean aperture (ISO/IEC 14496-12, section 12.1.4.1): size, and offset of its centre."""
    _, box, rest = header.partition(CROP_BOX)
    if not box or len(rest) < CROP_NUMBERS.size:
        return None
    numbers = CROP_NUMBERS.unpack_from(rest)
    if 0 in numbers[1::2]:
        return None
    across, down, right, below = (Fraction(*numbers[k : k + 2]) for k in range(0, 8, 2))
    left, top = round((width - across) / 2 + right), round((height - down) / 2 + below)
    crop = Crop(left, top, round(across), round(down))
    inside = 0 <= left <= width - crop.width and 0 <= top <= height - crop.height
    is_whole = (crop.width, crop.height) == (width, height)
    return crop if inside and min(crop.width, crop.height) > 0 and not is_whole else None


def _parse_dolby_vision(header: bytes) -> int | None:
    """Parses the profile: seven bits after two bytes of version."""
    for name in DOLBY_VISION_BOXES:
        _, box, record = header.partition(name)
        if box and len(record) > 2:
            return record[2] >> 1
    return None
