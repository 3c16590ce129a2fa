"""Declares what the values of settings may be: names with commas between them, addresses, secrets, paths.

Each is a text or a path, checked as it is read; what is wrong is said in a sentence on how to give it.
"""

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

#: A name, an IPv4 or IPv6 address, ``*.`` and a name, or ``*``.
HOST_PATTERN = re.compile(r"\*|(\*\.)?[\w.-]+|\[?[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\]?")
ORIGIN_PATTERN = re.compile(r"\*|https?://[\w.-]+(:\d{1,5})?|https?://\[[0-9a-fA-F:.]+\](:\d{1,5})?")
#: Of a path that a proxy serves the service below: no dot begins a part, nothing is escaped.
ROOT_PATTERN = re.compile(r"(/[\w~-][\w.~-]*)*", re.ASCII)
SECRET_PATTERN = re.compile(r"whsec_[A-Za-z0-9+/]+={0,2}")
#: Engines under the names that they had before: users' settings stay good.
MOVED_ENGINES = {"app.pipeline:Engine": "app.pipeline.engine:Engine"}


def split_names(names: object) -> object:
    """Splits a text of names with commas between them."""
    if not isinstance(names, str):
        return names
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _check_host_name(name: str) -> str:
    if not HOST_PATTERN.fullmatch(name):
        raise ValueError(f"{name} is no host: give names as reel.example, *.example or *, without ports")
    return name


def _check_origin(origin: str) -> str:
    if not ORIGIN_PATTERN.fullmatch(origin):
        raise ValueError(f"{origin} is no origin: give it as https://app.example, without a path, or *")
    return origin.lower()


def _check_network(proxy: str) -> str:
    try:
        ip_network(proxy)
    except ValueError as error:
        raise ValueError(
            f"{proxy} is no address: give addresses or networks, as 10.0.0.5 or 10.0.0.0/24"
        ) from error
    return proxy


def _check_root(path: str) -> str:
    if not ROOT_PATTERN.fullmatch(path.rstrip("/")):
        raise ValueError(f"{path} is no path: give it as /reel, of letters, digits, dots and dashes")
    return path.rstrip("/")


def _check_private_host(name: str) -> str:
    if not is_network(name) and not re.fullmatch(r"[\w-]+(\.[\w-]+)*", name):
        raise ValueError(f"{name} is no host: give names, addresses, or networks as 10.0.0.0/8")
    return name


def is_network(name: str) -> bool:
    """Tells addresses and networks, as 10.0.0.0/8, from names of hosts."""
    try:
        ip_network(name, strict=False)
    except ValueError:
        return False
    return True


def _check_kept_time(kept: str) -> str:
    if not re.fullmatch(r"result|off|\d{1,9}(\.\d{1,3})?", kept):
        raise ValueError(f"{kept[:20]} is none of result, off and a number of seconds such as 86400")
    return kept


def _check_address(address: str) -> str:
    if not re.match(r"https?://[^/\s]+", address):
        raise ValueError(f"{address} is no address: give it as http://collector:4318")
    return address


def _check_secret(secret: str) -> str:
    size = len(secret.removeprefix("whsec_").rstrip("=")) * 3 // 4  # bytes that its base64 stands for
    if not SECRET_PATTERN.fullmatch(secret) or not 24 <= size <= 64:
        raise ValueError(
            "a secret is whsec_ and 24 to 64 random bytes in base64, as from "
            "echo whsec_$(openssl rand -base64 32)"
        )
    return secret


def _from_here(path: Path) -> Path:
    """Makes a path absolute: processes started from here may work in another folder."""
    return path.expanduser().absolute()


def _place_from_here(blobs: str) -> str:
    """Makes a folder absolute; a URL stays as it is."""
    return blobs if "://" in blobs or "::" in blobs else str(_from_here(Path(blobs)))


Secret = Annotated[str, AfterValidator(_check_secret)]
Item = TypeVar("Item", bound=str)
#: Texts with commas between them, as an environment variable has them.
Several = Annotated[tuple[Item, ...], NoDecode, BeforeValidator(split_names)]
Names = Several[str]
HostNames = Several[Annotated[str, AfterValidator(_check_host_name)]]
Origins = Several[Annotated[str, AfterValidator(_check_origin)]]
Networks = Several[Annotated[str, AfterValidator(_check_network)]]
PrivateHosts = Several[Annotated[str, AfterValidator(_check_private_host)]]
Secrets = Several[Secret]
RootPath = Annotated[str, AfterValidator(_check_root)]
KeptTime = Annotated[str, AfterValidator(_check_kept_time)]
WebAddress = Annotated[str, AfterValidator(_check_address)]
EngineName = Annotated[str, AfterValidator(lambda name: MOVED_ENGINES.get(name, name))]
PathFromHere = Annotated[Path, AfterValidator(_from_here)]
BlobPlace = Annotated[str, AfterValidator(_place_from_here)]
