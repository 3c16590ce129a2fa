"""Reads out of HEVC packets in which temporal layer their frame lies, without decoding.

A packet is a row of NAL units, each after its length (mp4, Matroska) or a start code (transport streams,
bare streams). The two bytes at a unit's start tell its type and its layer (ITU-T H.265, section 7.3.1.2);
units of frames have types below 32, parameter sets and messages those above.
"""

START_CODE = b"\x00\x00\x01"
HEADER_BYTES = 2
#: Types of NAL units that hold no part of a frame begin here.
FIRST_OTHER_TYPE = 32
#: Where hvcC, the record of mp4 and Matroska, tells how long lengths are (ISO/IEC 14496-15, section 8.3.3.1).
LENGTH_SIZE_AT = 21


def measure_length_field(extradata: bytes | None) -> int | None:
    """Reads how many bytes the length before each NAL unit takes; None where start codes stand instead."""
    if extradata is None or len(extradata) <= LENGTH_SIZE_AT or extradata[0] != 1:
        return None
    return (extradata[LENGTH_SIZE_AT] & 3) + 1


def find_temporal_layer(packet: memoryview, length_field: int | None) -> int | None:
    """Finds the temporal layer of a packet's frame, 0 for the lowest.

    packet: bytes of one frame. length_field: of ``measure_length_field``. Returns the layer, None where the
    packet makes no sense.
    """
    at = 0 if length_field is not None else _find_unit(packet, 0)
    while at is not None:
        length = 0
        if length_field is not None:
            length = int.from_bytes(packet[at : at + length_field], "big")
            at += length_field
        header = packet[at : at + HEADER_BYTES]
        if len(header) < HEADER_BYTES:
            return None
        if header[0] >> 1 & 0x3F < FIRST_OTHER_TYPE:
            return int(header[1] & 7) - 1 if header[1] & 7 else None
        at = at + length if length_field is not None else _find_unit(packet, at)
    return None


def _find_unit(packet: memoryview, at: int) -> int | None:
    """Finds where the next NAL unit after a start code begins; what is copied for that ends with it."""
    step = 256
    for begin in range(at, len(packet), step):
        place = bytes(packet[begin : begin + step + len(START_CODE) - 1]).find(START_CODE)
        if place >= 0:
            return begin + place + len(START_CODE)
    return None
