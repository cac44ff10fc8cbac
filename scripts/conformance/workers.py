"""Work in child processes. One that dies or hangs costs what it was doing, and is started again after it."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple


class Announcement(NamedTuple):
    """What a worker is about to do; the key is the same in every process."""

    key: Hashable
    what: Any


class Result(NamedTuple):
    """What came of it."""

    key: Hashable
    value: Any


class Lost(NamedTuple):
    """What a worker was doing when it died, with an exit code, or hung, without one."""

    what: Any
    exit_code: int | None


class Share:
    """A worker's share of the work, and its line to the process that started it."""

    def __init__(self, part: int, parts: int, done: set[Hashable], pipe: Any) -> None:
        self.part = part
        self.parts = parts
        self._done = done
        self._pipe = pipe

    def is_done(self, key: Hashable) -> bool:
        """Whether this worker has done it, or died of it, before it was started again."""
        return key in self._done

    def announce(self, key: Hashable, what: Any) -> None:
        self._pipe.send(Announcement(key, what))

    def finish(self, key: Hashable, value: Any) -> None:
        self._pipe.send(Result(key, value))


Work = Callable[..., None]  # takes a Share and the arguments


def _work(work: Work, part: int, parts: int, done: set[Hashable], pipe: Any, arguments: tuple[Any, ...]) -> None:
    work(Share(part, parts, done, pipe), *arguments)
    pipe.send(None)


class _Worker:
    """One child process after another, with the same share."""

    def __init__(self, work: Work, part: int, parts: int, arguments: tuple[Any, ...]) -> None:
        self._task = work, part, parts
        self._arguments = arguments
        self._done: set[Hashable] = set()
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe(duplex=False)
        self._announced: Announcement | None = None
        task = (*self._task, self._done, theirs, self._arguments)
        self._process = context.Process(target=_work, args=task, daemon=True)
        self._process.start()
        theirs.close()

    def receive(self) -> Result | None:
        """The next result. None after an announcement, and at the end, when `pipe` is closed.

        Raises:
            EOFError: the process is dead.
        """
        message = self.pipe.recv()
        if message is None:
            self._process.join()
            self.pipe.close()
            return None
        if isinstance(message, Announcement):
            self._announced = message
            return None
        self._announced = None
        self._done.add(message.key)
        return message

    def restart(self, hung: bool) -> Lost:
        """Start again after a death or a hang; returns what it cost."""
        if hung:
            self._process.kill()
        self._process.join()
        if self._announced is None:
            raise RuntimeError(f"a worker died between calls, exit code {self._process.exitcode}")
        lost = Lost(self._announced.what, None if hung else self._process.exitcode)
        self._done.add(self._announced.key)
        self._start()
        return lost


def in_workers(work: Work, arguments: tuple[Any, ...], jobs: int, timeout: float | None = None) -> Iterator[Any]:
    """Do work in processes of their own.

    Args:
        work: what each does, with its share and the arguments.
        arguments: what all are given.
        jobs: how many processes.
        timeout: the seconds after which a silence of all means that they hang.

    Yields:
        The value of each result, and a Lost for what was not finished.
    """
    workers = [_Worker(work, part, jobs, arguments) for part in range(jobs)]
    while workers:
        ready = multiprocessing.connection.wait([worker.pipe for worker in workers], timeout)
        for worker in workers if not ready else [worker for worker in workers if worker.pipe in ready]:
            if not ready:
                yield worker.restart(hung=True)
                continue
            try:
                result = worker.receive()
            except EOFError:
                yield worker.restart(hung=False)
                continue
            if result is not None:
                yield result.value
        workers = [worker for worker in workers if not worker.pipe.closed]
