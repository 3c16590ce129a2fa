"""Brings the file of an entry of the manifest over the network."""

from __future__ import annotations

from extractors.download import Downloader
from extractors.weights_errors import NotForDownload, Offline, WeightsDamaged
from extractors.weights_folder import Found, Look, WeightsFolder
from extractors.weights_manifest import Entry


def get(known: Entry, folder: WeightsFolder, downloader: Downloader, look: Look, *, offline: bool) -> Found:
    """The entry's file, from here if it is here and right, else from its URL.

    look: what a file that has come must pass before it takes its place. Raises WeightsError.
    """
    if (file := folder.locate(known)) is not None:
        try:
            return folder.check(known, file)
        except WeightsDamaged:
            if known.source != "url" or offline:
                raise
            file.unlink()
    if known.source != "url":
        raise NotForDownload(folder.remedy(known))
    if offline:
        raise Offline(f"REELWORD_OFFLINE is set, so nothing is downloaded. {folder.remedy(known)}")
    downloader.fetch(str(known.url), folder.place(known), lambda part: folder.admit(known, part, look))
    return folder.check(known, folder.place(known))
