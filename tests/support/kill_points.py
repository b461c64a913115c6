"""Work that is killed before every line of the modules that write files, in a folder each time.

Run as a program in a process of its own, as it forks: `kill_points.py FOLDER SCRIPT`. The script
defines `prepare(folder)` and `work(folder)`; the folders are named by the number of lines that ran.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

FILES = ("package_store.py", "file_locks.py", "flowmcp_snapshots.py")


def killed_everywhere(root, script):
    """The folders in which the work was killed, in order; in the last one it came to its end."""
    root.mkdir()
    subprocess.run([sys.executable, __file__, root, script], timeout=300, check=True)
    return sorted(root.iterdir(), key=lambda folder: int(folder.name))


def _kill_before(line):
    def trace(frame, event, _):
        nonlocal line
        if not frame.f_code.co_filename.endswith(FILES):
            return None
        if event == "line":
            line -= 1
            if not line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def main(root, script):
    """Work in one folder after the other, until no kill came before the end of the work."""
    names, first = {}, root / "1"
    exec(script, names)
    first.mkdir()
    names["prepare"](first)
    shutil.copytree(first, prepared := root.with_name("prepared"))
    for line in count(1):
        folder = root / str(line)
        shutil.copytree(prepared, folder, dirs_exist_ok=True)
        child = os.fork()
        if not child:
            _kill_before(line)
            names["work"](folder)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended != -signal.SIGKILL:
            sys.exit(ended)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
