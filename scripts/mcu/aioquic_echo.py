"""aioquic as a server that echoes streams. usage: CERTIFICATE KEY
[--retry] [--chacha]"""

import asyncio
import sys

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent, StreamDataReceived
from aioquic.tls import CipherSuite


class Echo(QuicConnectionProtocol):
    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived):
            self._quic.send_stream_data(event.stream_id, event.data, event.end_stream)
            self.transmit()


async def main() -> None:
    certificate, key, *rest = sys.argv[1:]
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["echo"])
    if "--chacha" in rest:
        configuration.cipher_suites = [CipherSuite.CHACHA20_POLY1305_SHA256]
    configuration.load_cert_chain(certificate, key)
    tickets = {}
    server = await serve(
        "127.0.0.1",
        0,
        configuration=configuration,
        create_protocol=Echo,
        retry="--retry" in rest,
        session_ticket_fetcher=lambda label: tickets.pop(label, None),
        session_ticket_handler=lambda ticket: tickets.update({ticket.ticket: ticket}),
    )
    print("port", server._transport.get_extra_info("sockname")[1], flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
