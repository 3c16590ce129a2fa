"""Everything that can go wrong between a network's name and its weights.

    WeightsError
    ├── ManifestDamaged     manifest_damaged     the list of weights cannot be read
    ├── UnknownWeights      unknown_weights      weights/manifest.toml has no entry of that name
    ├── WeightsMissing      weights_missing      neither the package nor the file is here
    ├── WeightsDamaged      weights_damaged      the file is not the one that was proven, or cannot be read
    ├── WrongCheckpoint     wrong_checkpoint     a checkpoint of another network
    └── DownloadError
        ├── NotForDownload      not_for_download     comes in a package, or from the user
        ├── Offline             offline              downloads are switched off
        ├── ServerUnreachable   server_unreachable   no answer, or it broke off again and again
        ├── DownloadRefused     download_refused     the server answered, but not with the file
        ├── DownloadDamaged     download_damaged     what came is not the file that was proven
        └── NoRoom              no_room              the disk is full, or the folder cannot be written

``str(error)`` is one sentence that says which file and what to do about it, ``code`` names the kind and
never changes, and ``hint`` is the remedy in general. docs/weights.md lists them all.
"""

from extractors.errors import ReelwordError


class WeightsError(ReelwordError, code="weights_error"):
    """Root of the tree; only its leaves are raised."""

    hint = "Run reelword weights list to see what is here."


class ManifestDamaged(WeightsError, code="manifest_damaged"):
    hint = "Correct the file; docs/weights.md says what an entry has."
    operator_hint = "REELWORD_MANIFEST names it."


class UnknownWeights(WeightsError, code="unknown_weights"):
    hint = "Choose a name that reelword weights list shows."


class WeightsMissing(WeightsError, code="weights_missing"):
    hint = "Run reelword weights get NAME, or bring the file: reelword weights add FILE --as NAME."


class WeightsDamaged(WeightsError, code="weights_damaged"):
    hint = "Delete the file and get it again; reelword weights verify checks all that are here."


class WrongCheckpoint(WeightsError, code="wrong_checkpoint"):
    hint = "Bring the file that docs/networks.md names for this network."


class DownloadError(WeightsError):
    """The file did not come over the network; nothing that was there before has changed."""


class NotForDownload(DownloadError, code="not_for_download"):
    hint = "Install the package, or bring the file: reelword weights add FILE --as NAME."


class Offline(DownloadError, code="offline"):
    hint = "Bring the file: reelword weights add FILE --as NAME."
    operator_hint = "Or unset REELWORD_OFFLINE."


class ServerUnreachable(DownloadError, code="server_unreachable"):
    hint = "Run the command again, it continues where it stopped; behind a proxy set HTTPS_PROXY."


class DownloadRefused(DownloadError, code="download_refused"):
    hint = "Get the file by a browser, then: reelword weights add FILE --as NAME."


class DownloadDamaged(DownloadError, code="download_damaged"):
    hint = "Run the command again; if it happens again, the file was changed where it is published."


class NoRoom(DownloadError, code="no_room"):
    hint = "Free space below the data folder."
    operator_hint = "Or point REELWORD_DATA at another disk."
