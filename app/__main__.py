"""``reelword`` and ``python -m app``: the command line.

In an installed package this folder is ``reelword_service/app``. The folders beside it are imported by their
own names there too, so that site-packages gets one name and not ``app`` and ``models``.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Runs the command line, and names what has to be installed where a package is missing."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from app.cli.main import main as run_command_line
    from app.terminal import complain
    from extractors.errors import PackageMissing, name_missing_packages

    try:
        with name_missing_packages():
            run_command_line()
    except PackageMissing as error:
        complain(error.advice)
        sys.exit(1)


if __name__ == "__main__":
    main()
