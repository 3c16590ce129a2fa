"""``reelword keys``: API keys, made, listed and revoked; app/access/keys.py keeps them."""

import json
import re
import time
from base64 import b64encode
from datetime import UTC, datetime
from secrets import token_bytes
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.model_options import AsJson, settings_with
from app.errors import UsageError
from app.terminal import complain, own_command, print_table, printable

if TYPE_CHECKING:
    from app.access.keys import ApiKey, KeyStore
    from app.settings import Settings

PATIENCE = 2.0  #: seconds of trying again while Redis is away
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
DURATION = re.compile(r"(\d{1,6})([smhdw])")
LIFTED = "none"
COLUMNS = ("id", "name", "scopes", "limits", "made", "expires")
#: What a key may be limited in, and how a list says it.
LIMITS = {
    "rate": "{} writing", "read_rate": "{} reading", "concurrent": "{} jobs at once",
    "max_upload_bytes": "{} bytes", "max_seconds": "{:g} s", "max_pixels": "{} pixels",
}  # fmt: skip

keys = typer.Typer(no_args_is_help=True)


@keys.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whom it is for.", show_default=False)],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="read, write or admin (all jobs, /metrics); several times. Default: read, write."),
    ] = None,
    rate: Annotated[str, typer.Option(help="Writing requests, as 60/minute; none lifts it.")] = "300/minute",
    read_rate: Annotated[
        str, typer.Option(help="Reading requests, as 1000/minute; none lifts it.")
    ] = "3000/minute",
    concurrent: Annotated[
        str, typer.Option(help="Jobs that may wait or run at once; none lifts it.")
    ] = "200",
    high: Annotated[bool, typer.Option("--high", help="Its jobs may have priority=high.")] = False,
    max_upload_bytes: Annotated[int | None, typer.Option(help="Of a video.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="How long a video may last.")] = None,
    max_pixels: Annotated[int | None, typer.Option(help="Of a frame, as 8294400 for 4K.")] = None,
    webhook_secret: Annotated[
        bool, typer.Option("--webhook-secret", help="Make one that signs its webhooks, and print it too.")
    ] = False,
    expires: Annotated[str | None, typer.Option(help="In how long, as 12h, 30d or 52w.")] = None,
) -> None:
    """Make a key and print it, once: it cannot be read again."""
    from pydantic import ValidationError

    from app.access.keys import make_key
    from models.decoding.options import first_fault

    terms = {
        "rate": None if rate == LIFTED else rate,
        "read_rate": None if read_rate == LIFTED else read_rate,
        "concurrent": None if concurrent == LIFTED else concurrent,
        "high": high,
        "webhook_secret": f"whsec_{b64encode(token_bytes(32)).decode()}" if webhook_secret else None,
        "max_upload_bytes": max_upload_bytes,
        "max_seconds": max_seconds,
        "max_pixels": max_pixels,
        "expires_at": None if expires is None else time.time() + seconds_of(expires),
    }
    store = _store(settings_with())
    if any(key.name == name for key in store.all().values()):
        raise UsageError(f"There is a key called {name}: revoke it first, or choose another name.")
    try:
        key, token = make_key(name, scopes=tuple(scope or ("read", "write")), **terms)
    except ValidationError as error:
        field, fault = first_fault(error)
        option = field.replace("_", "-").replace("scopes", "scope") or "key"
        raise UsageError(f"--{option}: {fault}.") from error
    store.add(key)
    complain(f"The key of {name}. Keep it: it is not shown again.")
    typer.echo(token)
    if key.webhook_secret is not None:
        typer.echo(key.webhook_secret)


@keys.command("list")
def show(as_json: AsJson = False) -> None:
    """List keys with what they may do, oldest first; secrets are not kept."""
    settings = settings_with()
    entries = list(_store(settings).all().values())
    if as_json:
        typer.echo(json.dumps([key.model_dump(exclude={"sha256", "webhook_secret"}) for key in entries]))
    elif entries:
        print_table(COLUMNS, [_row(key) for key in entries])
    else:
        typer.echo(f"There are no keys: {own_command('keys add NAME', settings)} makes one.")


@keys.command()
def revoke(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="Name or id, as keys list has it.", show_default=False)
    ],
) -> None:
    """End keys: they open nothing any more, within seconds, nor do pages that were signed in by them."""
    store, failed = _store(settings_with()), 0
    for name in names:
        matching = [key for key in store.all().values() if name in (key.name, key.id)]
        for key in matching:
            store.revoke(key.id)
            typer.echo(f"{printable(key.name)} is revoked.")
        if not matching:
            complain(f"There is no key called {name}: reelword keys list has them all.")
            failed += 1
    raise typer.Exit(1 if failed else 0)


def seconds_of(duration: str) -> int:
    """Reads a duration as 90s, 45m, 12h, 30d or 52w. Raises UsageError."""
    match = DURATION.fullmatch(duration.strip())
    if match is None or not int(match[1]):
        raise UsageError(f"--expires: {duration} is no duration: give one as 12h, 30d or 52w.")
    return int(match[1]) * UNITS[match[2]]


def _store(settings: "Settings") -> "KeyStore":
    from app.access.keys import KeyStore
    from app.jobs.job import Keys
    from app.jobs.redis_client import connect, redis_url

    return KeyStore(connect(redis_url(settings), PATIENCE), Keys(settings.namespace))


def _row(key: "ApiKey") -> tuple[str, ...]:
    limits = [
        text.format(value) for name, text in LIMITS.items() if (value := getattr(key, name)) is not None
    ]
    expires = "never" if key.expires_at is None else _day(key.expires_at)
    return (
        key.id,
        printable(key.name),
        ", ".join(key.scopes),
        ", ".join(limits) or "none",
        _day(key.created_at),
        f"{expires} (over)" if key.is_expired(time.time()) else expires,
    )


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M")
