"""Opens a media file: only real containers, only that one file, and a named reason when it fails.

FFmpeg opens whatever a probe recognises, and a playlist makes it open other files and addresses. Here
the demuxers are listed, image sequences and devices are out, and the only protocol is a descriptor of
the file that was asked for. A film that is encrypted would be decoded to noise: it is refused by what its
container says.
"""

from __future__ import annotations

import mmap
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import av
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream

from extractors.media import errors
from extractors.media.containers.completeness import list_outer_boxes
from extractors.media.media_file import MediaFile, MendedFile, open_bytes, open_descriptor

VIDEO_FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "avi", "gif", "apng", "mpegts", "mpeg", "mpegvideo",
    "flv", "live_flv", "asf", "ogg", "rm", "ivf", "obu", "av1", "h264", "hevc", "m4v", "mxf", "dv", "nut",
    "wtv", "dhav", "yuv4mpegpipe", "mjpeg", "swf",
)  # fmt: skip
# Bare streams of frames: nothing in them says at which rate they are to be shown.
BARE_FORMATS = ("h264", "hevc", "m4v", "mjpeg", "mpegvideo", "obu", "av1")
STILL_FORMATS = (
    "jpeg_pipe", "png_pipe", "bmp_pipe", "tiff_pipe", "webp_pipe", "jpegxl_pipe", "qoi_pipe", "ppm_pipe",
)  # fmt: skip
# Opened only to say "this is sound" instead of "this is nothing".
AUDIO_FORMATS = ("mp3", "wav", "flac", "aac", "ac3", "eac3", "aiff", "amr", "caf", "au", "w64")
#: What is taken for a video or a picture in a folder; a file that is named itself is tried in any case.
VIDEO_SUFFIXES = frozenset(
    {
        *(".3gp", ".avi", ".flv", ".gif", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg"),
        *(".mts", ".ogv", ".ts", ".vob", ".webm", ".webp", ".wmv"),
    }
)
PICTURE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".webp"})
WHITELIST = ",".join((*VIDEO_FORMATS, *STILL_FORMATS, *AUDIO_FORMATS))
HEAD = 1 << 18
SYNC, PACKET = 0x47, 188
ENOUGH_PACKETS = 4  # of one stream in a transport stream; damage scrambles no stream throughout
# Matroska: ContentEncodings > … ContentEncryption > ContentEncAlgo, each an element's number and size
MATROSKA, CLUSTER = b"\x1aE\xdf\xa3", b"\x1f\x43\xb6\x75"
MATROSKA_ENCRYPTION = re.compile(rb"\x6d\x80.{1,64}?\x50\x35.{1,200}?\x47\xe1\x81[\x01-\x05]", re.DOTALL)
ASF = b"0&\xb2u\x8ef\xcf\x11"
#: Content Encryption Object and its extended form (Advanced Systems Format, sections 3.14 and 3.15).
ASF_ENCRYPTION = (
    bytes.fromhex("fbb3112223bdd211b4b700a0c955fc6e"),
    bytes.fromhex("14e68a292226174cb935dae07ee9289c"),
)

AnyStream = TypeVar("AnyStream", AudioStream, VideoStream)

# AV_DISPOSITION_…: covers and chapter pictures; parts of a tiled picture and layers on top of another track
ATTACHED_PICTURE, TIMED_THUMBNAILS, DEPENDENT = 0x400, 0x800, 0x80000
DEFAULT = 0x1
FIRST_PACKETS = 500  #: of all tracks; a film shows its second frame among them
COVER_CODECS = ("mjpeg", "png", "bmp", "gif", "webp")
READ_TIMEOUT = 10.0
READ_RETRIES = 50  # a demuxer that fails at one damaged block may continue after it
LEAST_ROOM = 32 << 20
THREADS = 2  # a small fixed number: every further thread holds whole frames, and cores are shared

# Boxes an mp4 may begin with; a file whose first box is one of these is an mp4, whole or not.
MP4_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp")
PLAYLISTS = (b"#EXTM3U", b"ffconcat", b"<?xml", b"<MPD", b"[playlist]", b"<smil")
VIDEO_MAGIC = (
    b"\x1aE\xdf\xa3", b"FLV\x01", b"0&\xb2u\x8ef\xcf\x11", b"OggS", b"GIF8", b"\xff\xd8\xff", b"\x89PNG",
)  # fmt: skip


@contextmanager
def open_media(path: MediaFile) -> Iterator[InputContainer]:
    """Opens the file as a PyAV container.

    Raises MissingFile, EmptyFile, NotAVideo, UnsupportedContainer, IncompleteFile, DecodeMemory.
    """
    av.logging.set_level(None)  # FFmpeg's messages quote the file, and its callback can deadlock
    descriptor = open_descriptor(path)
    try:
        # By descriptor, FFmpeg learns no name: none can be taken for a protocol, a pattern or a format
        options = {"fd": str(descriptor), "format_whitelist": WHITELIST, "protocol_whitelist": "fd"}
        source: Any = open_bytes(path, descriptor) if isinstance(path, MendedFile) else "fd:"
        try:
            container = av.open(
                source, mode="r", options=options, metadata_errors="replace", timeout=READ_TIMEOUT
            )
        except (av.error.FFmpegError, UnicodeError, ValueError) as error:
            # a damaged header can ask for any amount of memory: that is the file's fault
            if isinstance(error, MemoryError) and not has_room(LEAST_ROOM):
                raise errors.DecodeMemory("Opening the file took more memory than allowed.") from error
            raise _explain_unreadable(path) from error
        with container:
            yield container
    finally:
        os.close(descriptor)


def read_packets(container: InputContainer, stream: AnyStream) -> Iterator[Packet[AnyStream]]:
    """Reads packets from where the container stands to its end, past places where it is damaged."""
    failures = 0
    while failures < READ_RETRIES:
        try:
            yield from container.demux(stream)
            return
        except av.error.EOFError:
            return
        except IndexError:  # a packet of a track that began in mid-file, which PyAV has no stream for
            continue
        except av.error.FFmpegError:
            failures += 1


def has_room(size: int) -> bool:
    """Returns whether ``size`` more bytes can be had; some decoders call a file invalid without memory."""
    try:
        mmap.mmap(-1, max(1, size)).close()
    except (OSError, MemoryError):
        return False
    return True


def select_picture_stream(container: InputContainer, max_pixels: int) -> VideoStream:
    """Selects the track that players show, ready to decode: the first that is enabled and default, no cover.

    Raises AudioOnly, NoVideoStream, UnsupportedCodec, TiledImage, TooManyPixels.
    """
    tracks = _rank_tracks(container, list_picture_tracks(container))
    if tracks:
        stream = tracks[0]
        context: VideoCodecContext | None = stream.codec_context
        if context is None:
            raise errors.UnsupportedCodec("The picture track is in a codec that cannot be decoded here.")
        check_pixels(context.width, context.height, max_pixels)
        context.thread_type = "AUTO"
        context.thread_count = THREADS
        # the header may understate: the decoder itself refuses larger frames too
        context.options = {"max_pixels": str(max_pixels)}
        return stream
    if any(int(track.disposition) & DEPENDENT for track in container.streams.video):
        raise errors.TiledImage("The picture is made of tiles, which cannot be put together here.")
    if container.streams.audio:
        raise errors.AudioOnly("The file holds sound but no moving pictures.")
    raise errors.NoVideoStream("The file holds no picture track.")


def list_picture_tracks(container: InputContainer) -> list[VideoStream]:
    """Lists all tracks that may be the film, in the file's order."""
    aside = ATTACHED_PICTURE | TIMED_THUMBNAILS | DEPENDENT
    return [track for track in container.streams.video if not int(track.disposition) & aside]


def _rank_tracks(container: InputContainer, tracks: list[VideoStream]) -> list[VideoStream]:
    """Sorts tracks, first those that can be decoded, that move, that are default.

    FFmpeg calls the enabled tracks of an mp4 default, as it does those that Matroska marks so.
    """
    if len(tracks) < 2:
        return tracks
    doubtful = {track.index for track in tracks if _is_doubtful(container, track)}
    return sorted(tracks, key=lambda each: (each.index in doubtful, not int(each.disposition) & DEFAULT))


def _is_doubtful(container: InputContainer, track: VideoStream) -> bool:
    """Returns whether the track cannot be decoded or is a cover that nothing marks as one."""
    context: VideoCodecContext | None = track.codec_context
    if context is None or context.name not in COVER_CODECS:
        return context is None
    return (track.frames or _count_first_frames(container, track)) == 1


def _count_first_frames(container: InputContainer, track: VideoStream) -> int:
    """Counts a track's frames, two at most, among the first packets of a file whose header counts none."""
    count = 0
    try:
        for packet in islice(container.demux(), FIRST_PACKETS):
            count += packet.stream.index == track.index and packet.size > 0
            if count == 2:
                break
        container.seek(0)
    except (av.error.FFmpegError, IndexError):
        pass
    return count


def check_pixels(width: int, height: int, limit: int) -> None:
    """Keeps frames from being larger than allowed.

    Args:
        width, height: pixels of a frame.
        limit: pixels allowed in all.

    Raises:
        TooManyPixels: where it is.
    """
    if width * height > limit:
        raise errors.TooManyPixels(f"The frames have {width} × {height} pixels, more than {limit} in all.")


def find_sound_stream(container: InputContainer) -> AudioStream | None:
    """Finds the first track of sound that can be decoded, or None."""
    streams: tuple[Any, ...] = container.streams.audio
    for stream in streams:
        if stream.codec_context is not None:
            return stream  # type: ignore[no-any-return]
    return None


def _explain_unreadable(path: MediaFile) -> errors.MediaError:
    """Makes the error of a cut-off video, of a list of other files, or of something else altogether."""
    with open_bytes(path) as file:
        head = file.read(64)
    if head[4:8] in MP4_BOXES:
        if not _has_index(path):
            return errors.IncompleteFile("The file ends before its index (the moov box): its end is missing.")
        return errors.IncompleteFile("The file's index (the moov box) is damaged or cut off.")
    if head.lstrip().startswith(PLAYLISTS):
        return errors.UnsupportedContainer("The file is a list that points to other files, not a video.")
    if head.startswith(VIDEO_MAGIC) or (head[:4] == b"RIFF" and head[8:12] in (b"AVI ", b"WEBP")):
        return errors.IncompleteFile("The file begins like a video but its header is damaged or cut off.")
    return errors.NotAVideo("The file is not in any video format that is read here.")


def _has_index(path: MediaFile) -> bool:
    """Returns whether one of an mp4's outermost boxes is ``moov`` (ISO/IEC 14496-12, section 4.2)."""
    with open_bytes(path) as file:
        return any(name == b"moov" for name, _, _ in list_outer_boxes(file))


def refuse_encrypted_file(path: MediaFile) -> None:
    """Raises Encrypted where the header of a Matroska, ASF or transport stream file says so."""
    try:
        with open_bytes(path) as file:
            head = file.read(HEAD)
    except OSError:
        return
    if head.startswith(MATROSKA):
        encrypted = MATROSKA_ENCRYPTION.search(head.partition(CLUSTER)[0]) is not None
    elif head.startswith(ASF):
        encrypted = any(mark in head for mark in ASF_ENCRYPTION)
    else:
        encrypted = _is_scrambled(head)
    if encrypted:
        raise _make_encrypted()


def refuse_encrypted_packet(packet: Packet[Any]) -> None:
    """Raises Encrypted where an mp4 says so of this packet (ISO/IEC 23001-7); the first may be clear."""
    if packet.has_sidedata("encryption_info"):
        raise _make_encrypted()


def _is_scrambled(head: bytes) -> bool:
    """Returns whether all packets of one stream have the scrambling bits set (ISO/IEC 13818-1)."""
    if head[:1] != b"\x47" or head[PACKET : PACKET + 1] != b"\x47":
        return False
    scrambled, clear = Counter[int](), set[int]()
    for at in range(0, len(head) - 3, PACKET):
        stream = int.from_bytes(head[at + 1 : at + 3], "big") & 0x1FFF
        if head[at] == SYNC and head[at + 3] >> 6 in (2, 3):
            scrambled[stream] += 1
        else:
            clear.add(stream)
    return any(count >= ENOUGH_PACKETS for stream, count in scrambled.items() if stream not in clear)


def _make_encrypted() -> errors.Encrypted:
    return errors.Encrypted("The film is encrypted (DRM), and there is no key to it here.")
