"""Run as a program: commands in terminals of their own, one after the other, driven by pexpect.

Everything is imported once and each command gets a copy of this process (fork), so that none spends its seconds on
imports. Reads a list of jobs as JSON: `words`, `columns`, and for Ctrl-C either `slow`, a pattern for the file or
module that the disk takes long to find, or `seen`, a pattern for the screen. Writes [status, screen] for each.
"""

import json
import os
import pty
import re
import signal
import sys
import time

PATIENCE = 1_200
AT_WORK = "the disk is slow"


def slow_disk(pattern):
    """The first file or module whose name matches takes for ever to be opened."""
    found = []

    def hook(event, arguments):
        if event in ("open", "import") and not found and re.search(pattern, str(arguments[0])):
            found.append(True)
            os.write(1, f"{AT_WORK}\n".encode())
            for _ in range(20 * PATIENCE):  # a signal just before a sleep is heard after it
                time.sleep(0.05)

    sys.addaudithook(hook)


def command(job):
    """In the copy: become the command."""
    from scirocco import cli

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ |= {"TERM": "xterm", "COLUMNS": str(job["columns"]), "LINES": "50"}
    if "slow" in job:
        slow_disk(job["slow"])
    sys.argv = ["scirocco", *job["words"]]
    cli.main()


def drive(job):
    """Exit status and screen."""
    import pexpect
    from pexpect import fdpexpect

    pid, terminal = pty.fork()
    if pid == 0:
        try:
            command(job)
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(end.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
        os._exit(99)
    screen = fdpexpect.fdspawn(terminal, encoding="utf-8", codec_errors="replace", timeout=PATIENCE)
    shown = ""
    try:
        if "slow" in job or "seen" in job:
            screen.expect(job.get("seen", AT_WORK))
            shown = screen.before + screen.after
            screen.send("\x03")
        screen.expect(pexpect.EOF)
        shown += screen.before
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except (pexpect.TIMEOUT, pexpect.EOF) as error:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        status, shown = -1, f"{shown}{screen.before}\n{type(error).__name__}"
    screen.close()
    return status, shown


if __name__ == "__main__":
    from scirocco import analysis, datasets, jobs, models  # noqa: F401

    json.dump([drive(job) for job in json.load(sys.stdin)], sys.stdout)
