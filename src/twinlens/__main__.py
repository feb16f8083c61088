"""`python -m twinlens`."""

import sys

from twinlens.cli.main import main

sys.exit(main())
