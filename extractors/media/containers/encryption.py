"""Finds out that a file is encrypted, by what its container says; without the key it decodes to noise."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Any

from av.packet import Packet

from extractors.media import errors

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


def refuse_encrypted_file(path: str | os.PathLike[str]) -> None:
    """Raise Encrypted where the header of a Matroska, ASF or transport stream file says so."""
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD)
    except OSError:
        return
    if head.startswith(MATROSKA):
        found = MATROSKA_ENCRYPTION.search(head.partition(CLUSTER)[0]) is not None
    elif head.startswith(ASF):
        found = any(mark in head for mark in ASF_ENCRYPTION)
    else:
        found = _is_scrambled(head)
    if found:
        raise _make_error()


def refuse_encrypted_packet(packet: Packet[Any]) -> None:
    """Raise Encrypted where an mp4 says so of this packet (ISO/IEC 23001-7); the first may be clear."""
    if packet.has_sidedata("encryption_info"):
        raise _make_error()


def _is_scrambled(head: bytes) -> bool:
    """Tell whether all packets of one stream have the scrambling bits set (ISO/IEC 13818-1)."""
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


def _make_error() -> errors.Encrypted:
    return errors.Encrypted("The film is encrypted (DRM), and there is no key to it here.")
