"""An S3 server on the loopback, for as long as its input is held open. Prints its port.

It speaks the protocol; it checks no signature and keeps nothing.
"""

from __future__ import annotations

import sys

from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
sys.stdout.write(f"{server.get_host_and_port()[1]}\n")
sys.stdout.flush()
sys.stdin.read()
server.stop()
