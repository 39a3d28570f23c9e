"""The mailbox passes messages and replies, also after its process was killed."""

import itertools
import os
import signal
import subprocess
import sys

import pytest

from .processes import ROOT, actors

pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray")]


def send_and_kill() -> None:
    """Send messages; kill the mailbox while an exchange waits for its reply, and again."""
    from lmzoo.lab.cluster.connection import cluster

    with cluster():
        import ray

        from lmzoo.lab.sweep.driver.mailbox import start_mailbox
        from lmzoo.lab.sweep.messages import Assignment, Exchange, Hello

        mailbox = start_mailbox("sweep-test")

        def fetch(replies, *kinds):
            """Send replies; return messages when these kinds have arrived, and the heartbeats."""
            messages, beats = [], {}
            for seconds in itertools.chain([0.1], itertools.repeat(1.0)):
                new, beats = ray.get(mailbox.fetch.remote(replies, {}, seconds), timeout=60)
                messages, replies = messages + new, {}
                if {type(message) for message in messages} >= {*kinds}:
                    return sorted(messages, key=str), beats

        first, hello = Exchange("a", 1, ["run"]), Hello("b", b"", "node", "host")
        reply = mailbox.exchange.remote(first)
        mailbox.post.remote(hello)
        ray.get([mailbox.beat.remote("b") for _ in range(3)])
        messages, beats = fetch({}, Exchange, Hello)
        assert messages == [first, hello]
        assert beats == {"b": 3}
        assert not ray.wait([reply], timeout=1.0)[0]
        fetch({"a": (0, "an older reply"), "unknown": (1, 1)})
        assert not ray.wait([reply], timeout=1.0)[0]
        fetch({"a": (1, Assignment(["run"]))})
        assert ray.get(reply, timeout=60) == Assignment(["run"])
        assert fetch({}) == ([], {"b": 3})

        for number in range(2):
            message = Exchange("a", number)
            reply = mailbox.exchange.remote(message)
            assert fetch({}, Exchange)[0] == [message]
            (pid,) = actors(os.getpid(), "Mailbox")
            os.kill(pid, signal.SIGKILL)
            messages, beats = fetch({}, Exchange)
            assert messages in ([message], [message] * 2), "it is not repeated"
            assert beats == {}
            fetch({"a": (number, number)})
            assert ray.get(reply, timeout=60) == number


def test_a_killed_mailbox_is_restarted_and_an_exchange_is_repeated():
    # In a process of its own: here, other tests have imported Ray before its token was set.
    code = f"from {__name__} import send_and_kill; send_and_kill()"
    environment = {**os.environ, "RAY_ADDRESS": "local"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
