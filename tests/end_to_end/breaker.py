"""A network that breaks: passes bytes on between client and server, and cuts connections when told to."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

from tests.support.listening import free_address

PATIENCE = 60.0


class Breaker:
    """Passes bytes on between client and server, and cuts connections every now and then."""

    def __init__(self, port: int, seed: int) -> None:
        self._port, self._random = port, random.Random(seed)
        self._open: set[asyncio.StreamWriter] = set()
        self.address = free_address()
        self.cuts = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Breaker:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._pass, self.address.host, self.address.port))
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            self._server.close()
            for writer in self._open:
                writer.transport.abort()
            await asyncio.sleep(0.05)
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Break about half of the connections."""

        async def some() -> None:
            for writer in [*self._open]:
                if self._random.random() < 0.5:
                    writer.transport.abort()
                    self.cuts += 1

        self._run(some())

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._open |= {writer, back}
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        finally:
            self._open -= {writer, back}
            for one in (writer, back):
                one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.transport.abort()
