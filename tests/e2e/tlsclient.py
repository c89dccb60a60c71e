# SPDX-License-Identifier: Apache-2.0
"""A TLS client by the system's libssl, for what Python's own module has no call: key updates and renegotiation."""
import ctypes
import ctypes.util
import socket

from lib import Skip

UPDATE_REQUESTED = 1  # SSL_KEY_UPDATE_REQUESTED
SET_MIN, SET_MAX = 123, 124  # SSL_CTRL_SET_MIN_PROTO_VERSION and _MAX_
TLS12, TLS13 = 0x0303, 0x0304


def library():
    name = ctypes.util.find_library("ssl")
    if not name:
        raise Skip("libssl is not here")
    lib = ctypes.CDLL(name)
    if not hasattr(lib, "SSL_key_update"):
        raise Skip("this libssl has no SSL_key_update()")
    for f in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
        getattr(lib, f).restype = ctypes.c_void_p
    return lib


class TlsClient:
    """A blocking connection that trusts everybody."""

    def __init__(self, port, version, rcvbuf=0):
        self.lib = library()
        self.s = socket.socket()
        if rcvbuf:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.s.connect(("127.0.0.1", port))
        context = ctypes.c_void_p(self.lib.SSL_CTX_new(ctypes.c_void_p(self.lib.TLS_client_method())))
        for what in (SET_MIN, SET_MAX):
            self.lib.SSL_CTX_ctrl(context, what, ctypes.c_long(version), None)
        self.ssl = ctypes.c_void_p(self.lib.SSL_new(context))
        self.lib.SSL_CTX_free(context)
        self.lib.SSL_set_fd(self.ssl, self.s.fileno())
        assert self.lib.SSL_connect(self.ssl) == 1, "no handshake"

    def write(self, data):
        return self.lib.SSL_write(self.ssl, data, len(data)) == len(data)

    def read(self, n=1 << 16):
        """What is there, b"" at the end or at an error."""
        piece = ctypes.create_string_buffer(n)
        got = self.lib.SSL_read(self.ssl, piece, n)
        return piece.raw[:got] if got > 0 else b""

    def update(self):
        """Asks for new keys both ways; whether that could be written."""
        return self.lib.SSL_key_update(self.ssl, UPDATE_REQUESTED) == 1 and self.lib.SSL_do_handshake(self.ssl) == 1

    def renegotiate(self):
        """Whether the server took part."""
        return self.lib.SSL_renegotiate(self.ssl) == 1 and self.lib.SSL_do_handshake(self.ssl) == 1

    def close(self):
        self.lib.SSL_free(self.ssl)
        self.s.close()
