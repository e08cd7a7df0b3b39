"""
One TLS client session as bytes in and bytes out, with no I/O of its own.

Why not asyncio's TLS or a wrapped socket: a session in memory can begin on a plain blocking socket and continue on an
event loop, at any point. Source: Python's ssl.MemoryBIO and ssl.SSLObject.
"""

from __future__ import annotations

import ssl

from inplace.common.bare.typed import Final

_RECORD_BYTES_MAX: Final = 16 * 1024  # of plain text in one TLS record (RFC 8446, 5.1)


class TlsSession:
    """Drive with `handshake` until `is_established`, then `encrypt` and `decrypt`; send what `unsent` returns.

    Args:
        server_name: what the server's certificate must carry.
    """

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._received, self._unsent = ssl.MemoryBIO(), ssl.MemoryBIO()
        # As bytes, a name is not put through the IDNA codec, which would be imported for it.
        name = server_name.encode("ascii") if server_name.isascii() else server_name
        self._tls = context.wrap_bio(self._received, self._unsent, server_hostname=name)
        self.is_established = False

    def handshake(self) -> None:
        """Go as far as the bytes received allow.

        Raises:
            ssl.SSLError: the peer is not trusted, or speaks no TLS; what is unsent tells it so.
        """
        try:
            self._tls.do_handshake()
            self.is_established = True
        except ssl.SSLWantReadError:
            pass

    def unsent(self) -> bytes:
        """Return what has to be written to the socket now."""
        return self._unsent.read()

    def receive(self, received: bytes) -> None:
        """Take bytes from the socket, b"" at its end."""
        if received:
            self._received.write(received)
        else:
            self._received.write_eof()

    def encrypt(self, plain: bytes) -> None:
        """Put plain text among the unsent bytes."""
        self._tls.write(plain)

    def decrypt(self) -> bytes | None:
        """Return a piece of plain text, b"" at the session's end, None when more bytes have to be received.

        Raises:
            ssl.SSLError: the bytes are not this session's.
        """
        try:
            return self._tls.read(_RECORD_BYTES_MAX)
        except ssl.SSLWantReadError:
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""  # without a goodbye too: HTTP's framing tells whether something is missing
