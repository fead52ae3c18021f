"""Whether a pushed batch is really from Quell: the signature of Standard Webhooks 1.0, as the server itself checks it.

Signed is `id.timestamp.body` with HMAC-SHA256; the secret is `whsec_` and base64. The bytes count as they came: check them
before anything is parsed. All pairs of secrets and signatures are compared, each in constant time, so the time it takes tells
nothing; the proof comes before the time, so a stranger learns nothing of this machine's clock.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from .errors import SignatureError
from .shapes import Duration, milliseconds

# Each costs a comparison; a sender that changes its secret needs two.
_SIGNATURES_MAX = 16
# As long as the id of an event may be.
_ID_BYTES_MAX = 256
# More digits than any second since 1970 has: what is longer is not a time.
_TIMESTAMP_DIGITS_MAX = 15

Headers = Union[Mapping[str, str], Iterable[Tuple[str, str]]]


def verify(
    body: bytes,
    headers: Headers,
    secret: Union[str, Sequence[str]],
    tolerance: Duration = 300,
    now: Optional[float] = None,
) -> str:
    """Raises `SignatureError` unless one of the secrets has signed these bytes not longer ago than `tolerance`.

    Answers with the `webhook-id`. It stays the same when a batch is sent again: keep it with the effect.
    """
    keys = [_key(text) for text in ([secret] if isinstance(secret, str) else secret)]
    given = _header(headers, "webhook-signature", "signature")
    id = _header(headers, "webhook-id", "header")
    timestamp = _header(headers, "webhook-timestamp", "header")
    # A dot would let the signed text be taken apart in another place.
    if len(id) > _ID_BYTES_MAX or not all("!" <= c <= "~" and c != "." for c in id):
        raise SignatureError("malformed_header", f"webhook-id is 1 to {_ID_BYTES_MAX} visible characters and no dot")
    entries = [entry[3:] for entry in given.split(" ") if entry.startswith("v1,")][:_SIGNATURES_MAX]
    signatures = [read for read in map(_from_base64, entries) if read is not None]
    if not signatures:
        raise SignatureError("malformed_signature", "webhook-signature has no signature of version v1 that can be read")
    signed = f"{id}.{timestamp}.".encode("utf-8") + body
    rights = [hmac.new(key, signed, hashlib.sha256).digest() for key in keys]
    # A list, not `any`: nothing is left out because an earlier pair was right.
    if True not in [hmac.compare_digest(right, signature) for right in rights for signature in signatures]:
        raise SignatureError("bad_signature", "the signature is not that of these bytes with our secret")
    _check_time(timestamp, time.time() if now is None else now, milliseconds(tolerance) // 1000)
    return id


def _check_time(timestamp: str, now: float, tolerance: int) -> None:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _TIMESTAMP_DIGITS_MAX):
        raise SignatureError("malformed_header", "the time in webhook-timestamp is not a number of seconds")
    age = int(now) - int(timestamp)
    if age > tolerance:
        raise SignatureError("stale", f"it was sent {age} s ago, and {tolerance} s are allowed")
    if age < -tolerance:
        raise SignatureError(
            "future",
            f"it says it was sent {-age} s in the future, and {tolerance} s are allowed: is this machine's clock right?",
        )


def _key(text: str) -> bytes:
    """The bytes of a secret. The text itself is never told."""
    text = text.strip()
    key = _from_base64(text[len("whsec_") :] if text.startswith("whsec_") else text)
    if key is None:
        raise ValueError("a secret is whsec_ and base64: `openssl rand -base64 32` makes one")
    if not 24 <= len(key) <= 64:
        raise ValueError(f"a secret is base64 of 24 to 64 bytes; this one has {len(key)}")
    return key


def _from_base64(text: str) -> Optional[bytes]:
    """With or without its padding, and nothing but base64: senders differ."""
    bare = text.rstrip("=")
    padding = -len(bare) % 4
    if len(text) - len(bare) not in (0, padding):
        return None
    try:
        read = base64.b64decode(bare + "=" * padding, validate=True)
    except (binascii.Error, ValueError):
        return None
    # Bits beyond the last byte must be zero: otherwise two texts would be one signature.
    return read if base64.b64encode(read).decode("ascii").rstrip("=") == bare else None


def _header(headers: Headers, name: str, kind: str) -> str:
    """A header that must be there once. Twice is a trick: two readers may take two of them for the one."""
    items: Any = headers.items() if isinstance(headers, Mapping) or hasattr(headers, "items") else headers
    values: List[str] = [value for key, value in items if key.lower() == name]
    if not values or not values[0]:
        raise SignatureError(f"missing_{kind}", f"the header {name} is missing or empty")
    if len(values) > 1:
        raise SignatureError(f"malformed_{kind}", f"the header {name} is there twice")
    return values[0].strip()
