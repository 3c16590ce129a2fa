"""Names states of what is answered, and reads the names that clients have (RFC 9110, section 8.8.3)."""

import hashlib


def weak_etag(data: bytes) -> str:
    """Names data whose bytes may differ without being another state."""
    return f'W/"{hashlib.sha256(data).hexdigest()[:32]}"'


def split_etags(if_none_match: str | None) -> list[str]:
    """Lists the names in an If-None-Match header."""
    return [tag.strip() for tag in (if_none_match or "").split(",") if tag.strip()]
