"""Builds the images, starts docker-compose.yml, and tries jobs, scaling, kills, restarts, monitors.

    python -m benchmarks.deployment        make docker-test

Prints a table and exits with 1 where something is not as it has to be. Where no Docker daemon answers, one is
started by hand (root, Debian's packages, 25 GB); where no registry of images answers, stand-ins for the base
images are made of Debian's packages. All that was started is ended, and what was made is removed, unless
--keep is given.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.deployment import trials
from benchmarks.deployment.base_images import provide_base_images
from benchmarks.deployment.engine import CommandFailed, Engine, OwnDaemon
from benchmarks.deployment.packages import PackageServer, pin_torch
from benchmarks.deployment.service import NotInTime, Service
from benchmarks.deployment.stand_ins import Bootstrap
from benchmarks.deployment.trials import Deployment, Outcome

ROOT = Path(__file__).resolve().parents[2]
PORT = 18000
#: Videos come from a private container; models load for minutes on a machine that does other work.
SETTINGS = f"REELWORD_URL_HOSTS={trials.FILMS}\nREELWORD_ENGINE_START_SECONDS=900\n"
TRIALS: tuple[Callable[[Deployment], Iterator[Outcome]], ...] = (
    trials.build,
    trials.start,
    trials.keys,
    trials.clip,
    trials.url,
    trials.settings,
    trials.scale,
    trials.worker_killed,
    trials.redis_killed,
    trials.api_killed,
    trials.restarts,
    trials.down_and_up,
    trials.monitoring,
    trials.health,
    trials.everything,
    trials.sizes,
)


def main() -> int:
    options = read_options()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="reelword-deployment-"))
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended then too
    began = time.monotonic()
    rows: list[tuple[str, Outcome]] = []
    try:
        with ExitStack() as stack:
            deployment = prepare(folder, options, stack)
            for trial in TRIALS:
                if not options.only or trial.__name__ in options.only:
                    rows += [(name_of(trial), outcome) for outcome in hold(trial, deployment)]
    finally:
        show(rows, time.monotonic() - began)
        if not options.keep:
            shutil.rmtree(folder)
    return conclude(rows)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="where all is made; default: a temporary one")
    parser.add_argument(
        "--keep", action="store_true", help="leave the folder, with its images, for the next run"
    )
    parser.add_argument(
        "--only", nargs="*", metavar="TRIAL", help="by the names of the functions in trials.py"
    )
    parser.add_argument("--torch", type=Path, help="folder with a wheel of torch for processors, to pin")
    parser.add_argument("--niceness", type=int, default=0, help="of all that runs")
    return parser.parse_args()


def prepare(folder: Path, options: argparse.Namespace, stack: ExitStack) -> Deployment:
    """Finds or starts a daemon, provides base images, and copies the checkout.

    Args:
        folder: where all is made.
        options: of the command line.
        stack: gets what has to be ended.

    Raises:
        CommandFailed: something of it is not to be had.
    """
    checkout = copy_checkout(folder / "checkout")
    (checkout / ".env").write_text(SETTINGS)
    packages = PackageServer(folder / "served", options.torch)
    if options.torch is not None:
        pin_torch(checkout / "constraints.txt", options.torch)
    variables = {"PORT": str(PORT), "COMPOSE_PROJECT_NAME": "reelword"}
    engine = Engine(checkout, variables=variables)
    bootstrap = Bootstrap(folder, options.niceness)
    if not engine.answers():
        print("No Docker daemon answers: one is made of Debian's packages", flush=True)
        bootstrap.make_daemon()
        daemon = OwnDaemon(folder, options.niceness)
        stack.callback(daemon.stop)
        engine = daemon.start(variables)
    stack.callback(bring_down, engine)
    gateway = engine.docker("network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}")
    stack.enter_context(packages.serve(gateway))
    with (checkout / ".env").open("a") as file:
        file.write(f"TORCH_INDEX={packages.torch_index}\nIMAGE_REVISION={read_revision()}\n")
    provide_base_images(engine, bootstrap, packages.pip_settings)
    return Deployment(engine, Service(f"http://127.0.0.1:{PORT}"), trials.read_version(checkout), [])


def copy_checkout(place: Path) -> Path:
    """Copies the files that git knows, as they are, so that nothing else gets into the images."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    return place


def read_revision() -> str:
    """Reads the commit that is checked out."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return head.stdout.strip()


def bring_down(engine: Engine) -> None:
    """Removes containers, networks and volumes."""
    engine.compose("--profile", "monitoring", "down", "--volumes", "--remove-orphans")


def hold(trial: Callable[[Deployment], Iterator[Outcome]], deployment: Deployment) -> list[Outcome]:
    """Runs a trial; one that cannot go on is wrong, and the next ones are held."""
    print(name_of(trial), flush=True)
    outcomes: list[Outcome] = []
    try:
        for outcome in trial(deployment):
            outcomes.append(outcome)
            print(f"  {outcome.what}: {outcome.seen}{'' if outcome.is_right else '   WRONG'}", flush=True)
    except (CommandFailed, NotInTime, OSError, KeyError, ValueError, IndexError) as reason:
        outcomes.append(Outcome("given up", f"{type(reason).__name__}: {reason}", is_right=False))
        print(f"  {outcomes[-1].seen}", flush=True)
    return outcomes


def name_of(trial: Callable[[Deployment], Iterator[Outcome]]) -> str:
    return trial.__name__.replace("_", " ")


def conclude(rows: list[tuple[str, Outcome]]) -> int:
    """Prints whether a whole run was right, and returns the status that the command ends with."""
    wrong = sum(not outcome.is_right for _, outcome in rows)
    print(f"\n{wrong} of them wrong" if wrong else "\nall as it has to be")
    return 1 if wrong else 0


def show(rows: list[tuple[str, Outcome]], seconds: float) -> None:
    """Prints all outcomes as a table in Markdown."""
    print(f"\n{platform.machine()}, {os.cpu_count()} cores, {seconds:.0f} s in all\n")
    print("| trial | what | seen | |\n| --- | --- | --- | --- |")
    last = ""
    for name, outcome in rows:
        seen = " ".join(outcome.seen.split())[:200].replace("|", "\\|")
        verdict = "" if outcome.is_right else "WRONG"
        print(f"| {name if name != last else ''} | {outcome.what} | {seen} | {verdict} |")
        last = name


if __name__ == "__main__":
    sys.exit(main())
