"""Verifies what the service sends to a webhook."""

from __future__ import annotations

import json
from collections.abc import Mapping

from reelword.documents import WebhookMessage


def verify_webhook(body: bytes | str, headers: Mapping[str, str], secret: str) -> WebhookMessage:
    """Reads a webhook's message once its signature and its time are right.

    Needs ``pip install reelword[webhooks]``.

    Args:
        body: of the request, as it came.
        headers: of the request, by whatever case of their names.
        secret: ``whsec_…``, as the operator gave it.

    Raises:
        standardwebhooks.WebhookVerificationError: it was not signed with the secret, or is older than five
            minutes.
    """
    from standardwebhooks import Webhook

    text = body.decode() if isinstance(body, bytes) else body
    Webhook(secret).verify(text, {name.lower(): value for name, value in headers.items()})
    return WebhookMessage.model_validate(json.loads(text))
