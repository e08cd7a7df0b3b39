"""Run the agent: `python -m inplace.agent`."""

import sys

from inplace.agent.main import main

sys.exit(main())
