"""Lose the container's GPUs while rank 0 trains: each new process in it fails, a new container works.

nvidia-container-toolkit#48, after a reload of systemd's units. /tmp is the container's own, CHECKPOINT_DIR the Pod's.
"""

import os
import signal
import sys
import time
from pathlib import Path

spoilt, was_here = Path("/tmp/spoilt"), Path(os.environ["CHECKPOINT_DIR"], "was-here")
if spoilt.exists():
    print("Failed to initialize NVML: Unknown Error", flush=True)
    sys.exit(1)
print(f"trains in epoch {os.environ['INPLACE_EPOCH']}", flush=True)
if os.environ["JOB_COMPLETION_INDEX"] == "0" and not was_here.exists():
    spoilt.touch()
    was_here.touch()
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    time.sleep(0.1)
