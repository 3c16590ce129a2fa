"""Says how transformers opens folders in the Hugging Face format: offline, without remote code, silently."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Nothing is fetched and no code but transformers' own is run, whatever the folder says.
CLOSED: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


@contextmanager
def quieten_transformers() -> Iterator[None]:
    """Has transformers draw no bars and print no list of a folder's weights that a part does not read.

    Weights that are missing are in the report that ``output_loading_info`` returns.
    """
    from transformers.utils import logging

    had_bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if had_bars:
            logging.enable_progress_bar()
