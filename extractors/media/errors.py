"""Everything that can go wrong between a file and its frames.

    MediaError
    ├── InputError     the file itself; trying again cannot help
    ├── LimitError     a good file may do this; another limit or a shorter file helps
    └── DecoderError   the decoding process, seldom the file's fault alone

What a file only lacks is a ``WarningCode``: it is decoded all the same.

``str(error)`` is one sentence about this file, ``code`` names the kind and never changes, and ``hint``
says what to do. ``docs/decoding.md`` lists them all.
"""

from dataclasses import dataclass
from enum import Enum

from extractors.errors import ReelwordError, leaves


class MediaError(ReelwordError, code="media_error"):
    """Root of the tree; only its leaves are raised."""

    hint = "Send the video in another format."
    about_media = True


class InputError(MediaError):
    """The file is the trouble, and will be the next time too."""


class MissingFile(InputError, code="missing_file"):
    hint = "Check the path and that the file may be read."


class EmptyFile(InputError, code="empty_file"):
    hint = "Send the file again; its upload or export wrote no bytes."


class NotAVideo(InputError, code="not_a_video"):
    hint = "Send a video file such as mp4, mkv, webm, avi, mov or gif."


class UnsupportedContainer(InputError, code="unsupported_container"):
    hint = "Send the video itself, not a playlist, script or archive that points to it; mp4 always works."


class UnsupportedCodec(InputError, code="unsupported_codec"):
    hint = "Convert the video to H.264 in mp4 and send that."


class Encrypted(InputError, code="encrypted"):
    hint = "Send a copy without copy protection (DRM), or decrypt the video with its key first."


class TiledImage(InputError, code="tiled_image"):
    hint = "Convert the picture to JPEG or PNG and send that."


class IncompleteFile(InputError, code="incomplete_file"):
    hint = "The file was cut off: finish the recording, export or upload, then send it again."


class NoVideoStream(InputError, code="no_video_stream"):
    hint = "Send a file that has a picture track."


class AudioOnly(InputError, code="audio_only"):
    hint = "Send a file with moving pictures; sound and cover art alone cannot be captioned."


class NoFrames(InputError, code="no_frames"):
    hint = "Play the file to see whether it shows anything, then export it again."


class TooDamaged(InputError, code="too_damaged"):
    hint = "Copy or export the file again; most of its pictures cannot be decoded."


class LimitError(MediaError):
    """The file asks for more than the limits in force allow."""


class TooLong(LimitError, code="too_long"):
    hint = "Cut the video into shorter parts."


class TooManyPixels(LimitError, code="too_many_pixels"):
    hint = "Scale the video down to 4K or less."


class TooManyFrames(LimitError, code="too_many_frames"):
    hint = "Cut the video into shorter parts or lower its frame rate."


class DecodeTimeout(LimitError, code="decode_timeout"):
    hint = "Send a shorter or smaller video."
    operator_hint = "REELWORD_DECODE_SECONDS is the longest time for reading one."


class DecodeMemory(LimitError, code="decode_memory"):
    hint = "Scale the video down."
    operator_hint = "REELWORD_DECODE_MEMORY is what reading one may take."


class DecoderError(MediaError):
    """The process that decodes ended before it had answered."""


class DecoderFault(DecoderError, code="decoder_error"):
    """Our own code raised; another attempt would too. A job fails with ``worker_error`` by it."""

    hint = "This is a fault of the service and not of the video: report it with the file."


class DecoderCrashed(DecoderError, code="decoder_crashed"):
    hint = "Convert the video to H.264 in mp4 and send that; the file breaks the decoder."


class DecoderKilled(DecoderError, code="decoder_killed"):
    hint = "The decoding was stopped on request; send the video again if that was not meant."


def error_from_code(code: str, message: str) -> MediaError:
    """Returns the error a decoding process reported, made again on this side of the pipe."""
    for leaf in leaves(MediaError):
        if leaf.code == code:
            return leaf(message)
    return DecoderCrashed(f"The decoding process reported an unknown error: {code}.")


@dataclass(frozen=True)
class MediaWarning:
    """Holds something that the reader of a caption should know about the file; it did not stop the
    decoding.
    """

    code: str  #: one of ``WarningCode``
    message: str


class WarningCode(Enum):
    """Lists what can be warned of: the code, which never changes, and its sentence with places for facts."""

    INCOMPLETE = "incomplete", "{claim}."
    FRAMES_LOST = "frames_lost", "{lost} frames could not be decoded and were passed over."
    FRAMES_DAMAGED = "frames_damaged", "{damaged} frames were decoded with errors in them."
    TIMES_ESTIMATED = "times_estimated", "The file has no usable times; they follow from its rate."
    TIMES_MENDED = (
        "times_mended",
        "{mended} of {frames} frames have a doubled, backward or missing time, which was set between those "
        "of its neighbours.",
    )
    STAY_SHORTENED = (
        "stay_shortened",
        "The header and the edit list end the film at {end:.1f} seconds and a frame's own stay would make it "
        "{longer:.1f} longer; the header was followed.",
    )
    EDITS_PASSED_OVER = "edits_passed_over", "The edit list shows no frame of the film; all of it is read."
    FEWER_FRAMES = (
        "fewer_frames",
        "{asked} frames were wanted and {taken} of the {available} taken: no others are on screen at the "
        "times that were looked at.",
    )
    LONG_STAYS = (
        "long_stays",
        "Its frames stay for {stay:.1f} seconds, and a transport stream shows one every 0.7 at least: it may "
        "have lost some.",
    )
    STILL_IMAGE = "still_image", "The file is a single picture, not a video."
    TRACK_CHOSEN = (
        "track_chosen",
        "The file has {tracks} picture tracks; number {number} ({width} × {height}) is read.",
    )
    DOLBY_VISION = (
        "dolby_vision",
        "The video is Dolby Vision profile 5, whose colours are read wrongly (green and violet).",
    )
    BARS_LEFT_OUT = (
        "bars_left_out",
        "Even bars were left out: {width} % of the width and {height} % of the height were captioned.",
    )
    INTERLACED = "interlaced", "The video is interlaced; moving edges may look combed."
    HDR = "hdr", "The video is HDR ({curve}); it is read without tone mapping."
    HIGH_BIT_DEPTH = "high_bit_depth", "The {medium} has {depth} bits a colour; 8 are read."
    ALPHA_DROPPED = "alpha_dropped", "The {medium} has transparency, which is ignored."
    AUDIO_CUT = "audio_cut", "Only the first {limit:g} seconds of sound were read."
    AUDIO_DAMAGED = "audio_damaged", "{lost} packets of sound could not be decoded."
    AUDIO_UNREADABLE = "audio_unreadable", "The file's sound could not be decoded."
    READER_FALLBACK = "reader_fallback", "Read by PyAV and not decord: {reason}."

    def __init__(self, code: str, sentence: str) -> None:
        self.code = code
        self.sentence = sentence

    def warn(self, **facts: object) -> MediaWarning:
        """Returns the warning, its sentence filled with ``facts``."""
        return MediaWarning(self.code, self.sentence.format(**facts))
